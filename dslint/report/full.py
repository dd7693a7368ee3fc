"""The report for people: message, source frame, the other places, what to do, and what ``--fix`` would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from dslint.core.finding import Finding
from dslint.core.fix import Edit, Fix, OverlapError, apply_edits
from dslint.core.source import Location, Span
from dslint.report.console import text_console
from dslint.report.frame import frame, gutter_width
from dslint.report.links import rule_url
from dslint.report.options import ReportOptions
from dslint.report.place import assumption_lines, fix_mark, one_line, place, visible
from dslint.report.sources import SourceReader
from dslint.translate import Translator

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_PREVIEW_LINES = 12


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:
    """The findings one below the other, each with a blank line after it."""
    console, out = text_console(options)
    for finding in findings:
        # One call a finding: a call a line takes five times as long.
        console.print(Text("\n").join(_lines(console, finding, sources, options)), soft_wrap=True, end="\n\n")
    return out.getvalue() if options.color else _without_trailing_blanks(out.getvalue())


def _lines(console: Console, finding: Finding, sources: SourceReader, options: ReportOptions) -> Iterator[Text]:
    style = _STYLES[finding.severity.value]
    page = rule_url(finding.code) if options.hyperlinks else ""
    code = f"{style} link {page}" if page else style
    head = Text.assemble((f"{finding.severity.value}[{finding.code}]", code), (f" {finding.name}", "bold"))
    yield head.append(f" {mark}", "cyan") if (mark := fix_mark(finding)) else head
    yield from _wrapped(console, _prose(finding.message), 0)
    gutter = gutter_width((finding.location, *finding.related))
    for index, location in enumerate((finding.location, *finding.related)):
        yield _where(":::" if index else "-->", location, gutter, options)
        lines = sources.lines(location.path, location.region.cell)
        quoted = list(frame(location, lines, "bold blue" if index else style, options, gutter))
        if not quoted and location.label:
            yield Text(f"{' ' * gutter} = {one_line(location.label)}")
        yield from quoted
    say = options.translate
    for words in assumption_lines(finding):
        yield from _note(console, say(finding.confidence.value), _prose(say(words)), gutter)
    if finding.hint:
        yield from _note(console, say("help"), _prose(finding.hint), gutter)
    if finding.fix:
        yield from _note(console, say("fix"), _fix_title(finding.fix), gutter)
        for line in _preview(finding.fix, sources, say):
            yield Text(" " * (gutter + 3)).append(line)


def _where(arrow: str, location: Location, gutter: int, options: ReportOptions) -> Text:
    text = Text.assemble((f"{' ' * (gutter - 1)}{arrow} ", "blue"))
    shown = place(location)
    if not options.hyperlinks:
        return text.append(shown)
    from os.path import abspath

    target = f"file://{quote(abspath(location.path), errors='surrogateescape')}"
    return text.append(shown, f"link {target}")


def _prose(text: str) -> Text:
    """A sentence with its `identifiers` in bold; backticks stay, since colour may be off."""
    prose = Text(one_line(text))
    prose.highlight_regex(r"`[^`]+`", "bold")
    return prose


def _fix_title(fix: Fix) -> Text:
    flag = "--fix" if fix.safety.value == "safe" else "--fix --unsafe-fixes"
    return _prose(fix.title).append(f" ({flag})", "dim")


def _note(console: Console, name: str, text: Text, gutter: int) -> Iterator[Text]:
    return _wrapped(console, Text.assemble((f"{name}: ", "bold cyan")).append(text), gutter + 1)


def _wrapped(console: Console, text: Text, indent: int) -> Iterator[Text]:
    for line in text.wrap(console, console.width - indent):
        line.rstrip()
        yield Text(" " * indent).append(line)


def _preview(fix: Fix, sources: SourceReader, say: Translator) -> Iterator[Text]:
    """The lines that the fix takes away and puts in."""
    rows: list[Text] = []
    for path in dict.fromkeys(edit.path for edit in fix.edits):
        for sign, line in changed_lines(sources.text(path), [edit for edit in fix.edits if edit.path == path]):
            rows.append(Text(f"{sign} {_with_visible_end(line)}", "red" if sign == "-" else "green"))
    for row in rows[:_PREVIEW_LINES]:
        row.truncate(120, overflow="ellipsis")
        yield row
    if len(rows) > _PREVIEW_LINES:
        yield Text(say(f"... {len(rows) - _PREVIEW_LINES} more lines, see --diff"), "dim")


def changed_lines(text: str, edits: Sequence[Edit]) -> Iterator[tuple[str, str]]:
    """The lines that the edits take away (``-``) and put in (``+``), without those between that stay."""
    start = text.rfind("\n", 0, min(edit.span.start for edit in edits)) + 1
    end = text.find("\n", max(edit.span.end for edit in edits))
    end = len(text) if end < 0 else end
    moved = [Edit(edit.path, Span(edit.span.start - start, edit.span.end - start), edit.text) for edit in edits]
    try:
        after = apply_edits(text[start:end], moved)
    except OverlapError:
        return
    old = [line.rstrip("\r") for line in text[start:end].split("\n")]
    new = [line.rstrip("\r") for line in after.split("\n")]
    if new == [""]:
        new = []  # the whole line went
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from (("-", line) for line in old[a:b])
            yield from (("+", line) for line in new[c:d])


def _with_visible_end(line: str) -> str:
    """Blanks at the end of a line are the whole change of some fixes."""
    kept = line.rstrip(" \t")
    return visible(kept.expandtabs(4)) + "·" * (len(line) - len(kept))


def _without_trailing_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
