"""Suppression over all files of a run. Most files hold no directive: bytes decide before anything is parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Safety
from dslint.core.looked import Looked
from dslint.core.source import SourceFile, Span
from dslint.core.suppressed import Suppressed
from dslint.engine.discovery import kind_of
from dslint.parse.data import DataDoc
from dslint.parse.reading import Unreadable, decode, read_bytes
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR, UNREADABLE_FILE, UNUSED_SUPPRESSION
from dslint.rules.registry import BY_CODE
from dslint.suppress.files import FileIgnores

if TYPE_CHECKING:
    from dslint.engine.inputs import Inputs
    from dslint.settings import Settings
    from dslint.suppress.comments import Suppressions
    from dslint.suppress.logical import LogicalLines

# What can concern a file with findings: our codes and directives, and a ``noqa`` without codes. In the others only
# a directive that names dslint can be unused. ``noqa: F401``, in most of all files, is neither.
_CONCERNS = re.compile(rb"dslint|DSL|noqa(?!:\s?[A-Z]+[0-9])", re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*", re.MULTILINE)
_HTML_COMMENT = re.compile(r"<!--[^\n]*?-->(?=(?P<rest>\s*))")
_UNJUDGED = frozenset({SYNTAX_ERROR.code, RULE_CRASHED.code, UNREADABLE_FILE.code})


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the run: its bytes, and the document where one is parsed already."""

    kind: str
    raw: bytes
    doc: DataDoc | None = None


def suppress(
    findings: Sequence[Finding],
    inputs: Inputs,
    settings: Settings,
    overrides: Mapping[str, str],
    ignore_noqa: bool = False,
    is_whole: bool = False,
    looked: Looked | None = None,
) -> tuple[list[Finding], list[Suppressed]]:
    """Findings to report (unused suppressions among them) and findings that the user suppresses.

    ``is_whole``: the run is about all of the project. ``looked`` knows what was said of these bytes before.
    """
    if ignore_noqa:
        return list(findings), []
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        by_path.setdefault(finding.location.path, []).append(finding)
    given = dict(_files(inputs))
    looked = looked or Looked()
    judged = _judge_of(settings)
    reports_unused = settings.enabled(UNUSED_SUPPRESSION.code)
    kept: list[Finding] = []
    suppressed: list[Suppressed] = []
    for path in sorted({*given, *by_path}):
        own = by_path.get(path, [])
        file = given.get(path) or _from_disk(path, overrides)
        if not looked.says(_may_concern if own else _may_be_unused, path, file.raw):
            kept += own
            continue
        directives = _directives(path, file)
        if not directives:
            kept += own
            continue
        visible, hidden = directives.apply(own)
        kept += visible
        suppressed += hidden
        if reports_unused and path in given and not any(f.code in _UNJUDGED for f in own):
            found = directives.unused(judged)
            if is_whole:
                found += _perhaps_unused(directives, found, settings)
            # Edits of the joined cells cannot be written back into the JSON of a notebook.
            is_notebook = given[path].kind == "notebook"
            kept += [replace(f, fix=None) for f in found] if is_notebook else found
    ignores = FileIgnores(settings)
    kept, hidden = ignores.apply(kept)
    if reports_unused:
        kept += ignores.unused(given.keys(), judged)
        kept += ignores.stale(given.keys(), is_whole)
    return kept, [*suppressed, *hidden]


def _perhaps_unused(directives: Suppressions, certain: Sequence[Finding], settings: Settings) -> list[Finding]:
    """Suppressions that nothing in the whole project needs, of rules whose finding goes with the run: as notes.

    Another launch, or a flag such as --world-size, may need them: the fix is for a person to judge.
    """

    def judged(code: str) -> bool:
        return code in BY_CODE and settings.enabled(code)

    places = {finding.location.span for finding in certain}
    return [
        replace(
            found,
            severity=Severity.INFO,
            message=f"{found.message.partition(', so it')[0]} in any run of this project",
            fix=replace(found.fix, safety=Safety.UNSAFE) if found.fix else None,
        )
        for found in directives.unused(judged)
        if found.location.span not in places
    ]


def without_baseline(
    findings: Sequence[Finding], settings: Settings, overrides: Mapping[str, str], given: Set[str]
) -> tuple[list[Finding], list[Suppressed], list[str]]:
    """Findings that the baseline of the settings does not know, those that it knows, and its entries that are gone.

    Raises:
        BaselineError: there is no such baseline, or it cannot be read.
    """
    if settings.baseline is None:
        return list(findings), [], []
    from dslint.suppress.baseline import Baseline

    baseline = Baseline.read(str(settings.baseline))
    kept, known, over = baseline.apply(findings, texts_of(overrides), given)
    # A rule that speaks about the whole run is asked about all of it where all files of the baseline are judged.
    is_whole = baseline.is_covered_by(given)
    judged = _judge_of(settings)
    gone = [e for e in over if judged(e.code) or (is_whole and e.code in BY_CODE and settings.enabled(e.code))]
    return kept, known, [f"{entry.path}: {entry.code}" for entry in gone]


def texts_of(overrides: Mapping[str, str]) -> Callable[[Finding], SourceFile | None]:
    """From a finding to the text that its place counts in; each file is read once."""
    texts: dict[tuple[str, bool], SourceFile | None] = {}

    def text_of(finding: Finding) -> SourceFile | None:
        path, is_notebook = finding.location.path, finding.location.region.cell is not None
        if (path, is_notebook) not in texts:
            raw = overrides[path].encode("utf-8", "surrogatepass") if path in overrides else read_bytes(path)
            text = raw if isinstance(raw, Unreadable) else decode(raw)
            source = None if isinstance(text, Unreadable) else SourceFile(path, text)
            if source is not None and is_notebook:
                from dslint.parse.notebook import notebook_text

                source = notebook_text(path, source.text)
            texts[path, is_notebook] = source
        return texts[path, is_notebook]

    return text_of


def _judge_of(settings: Settings) -> Callable[[str], bool]:
    def judged(code: str) -> bool:
        # A rule that speaks about the whole run may need files or facts that this run lacks.
        info = BY_CODE.get(code)
        return info is not None and not info.depends_on_run and settings.enabled(code)

    return judged


def _files(inputs: Inputs) -> Iterator[tuple[str, _File]]:
    for path, raw in inputs.scripts.items():
        yield path, _File("script", raw)
    for path, raw in inputs.notebooks.items():
        yield path, _File("notebook", raw)
    for launch in inputs.launch:
        path = launch.path
        if not launch.is_document or path in inputs.scripts:
            continue
        file, named = inputs.launch_files[path], kind_of(path.rpartition("/")[2])
        kind = "markdown" if file.kind == "markdown" else named if named in ("yaml", "json") else "shell"
        yield path, _File(kind, file.raw)
    for doc in (*inputs.configs, *inputs.accelerate):
        yield doc.path, _File("data", doc.source.text.encode("utf-8", "surrogatepass"), doc)


def _may_concern(raw: bytes) -> bool:
    """Whether a directive may concern a finding."""
    return _CONCERNS.search(raw) is not None


def _may_be_unused(raw: bytes) -> bool:
    """Whether a directive may be there that no finding needs."""
    return b"DSL" in raw or b"dslint" in raw


def _directives(path: str, file: _File) -> Suppressions | None:
    from dslint.suppress.comments import Suppressions
    from dslint.suppress.logical import physical_lines, shell_commands

    text = file.doc.source.text if file.doc else decode(file.raw)
    if isinstance(text, Unreadable):
        return None
    source = SourceFile(path, text)
    if file.kind in ("script", "notebook"):
        return _python(path, text, file.kind)
    if file.kind == "markdown":
        below = html_comments(source)
        comments = [*_shell_comments(source, file.kind), *below]
        return Suppressions.from_comments(source, comments, shell_commands(text), below)
    if file.kind == "shell":
        return Suppressions.from_comments(source, _shell_comments(source, file.kind), shell_commands(text))
    if file.kind in ("manifest", "tasks"):
        return Suppressions.from_comments(source, [Span(*c.span()) for c in _COMMENT.finditer(text)], physical_lines)
    doc = file.doc or _data(source, file.kind)
    if doc is not None and file.kind == "yaml":
        from dslint.suppress.yamlblocks import YamlBlocks

        blocks = YamlBlocks(doc)
        comments = [*doc.comments, *blocks.comments()]
        return Suppressions.from_comments(source, comments, blocks.logical_lines(), blocks.meant(doc.comments))
    return Suppressions.from_comments(source, doc.comments if doc else (), physical_lines)


def _data(source: SourceFile, kind: str) -> DataDoc | None:
    """A config that was not given but holds one end of a finding."""
    if kind == "json":
        from dslint.parse.jsondoc import parse_json

        return parse_json(source)
    if kind == "yaml":
        from dslint.parse.yamldoc import parse_yaml

        return parse_yaml(source)
    return None


def _from_disk(path: str, overrides: Mapping[str, str]) -> _File:
    """A file that was not given but holds one end of a finding."""
    raw = overrides[path].encode("utf-8", "surrogatepass") if path in overrides else read_bytes(path)
    return _File(kind_of(path) or "shell", b"" if isinstance(raw, Unreadable) else raw)


def _python(path: str, text: str, kind: str) -> Suppressions | None:
    from dslint.suppress.comments import Suppressions
    from dslint.suppress.logical import python_statements

    source: object = SourceFile(path, text)
    if kind == "notebook":
        from dslint.parse.notebook import read_notebook

        source = read_notebook(path, text)
    if not isinstance(source, SourceFile):
        return None
    code = source.text
    return Suppressions.from_comments(source, _comments(code), _on_demand(lambda: python_statements(code)))


@lru_cache(maxsize=64)
def _comments(code: str) -> list[Span]:
    """The comments of a script, once for all looks at a text that does not change."""
    from dslint.parse.python import comment_spans

    return comment_spans(code)


def _on_demand(make: Callable[[], LogicalLines]) -> LogicalLines:
    """The second pass over the tokens of a file, made only for a file that holds a directive and a finding."""
    made: list[LogicalLines] = []

    def lines(start: int, end: int) -> tuple[int, int]:
        if not made:
            made.append(make())
        return made[0](start, end)

    return lines


def html_comments(source: SourceFile) -> dict[Span, tuple[int, int]]:
    """The comments of a Markdown text outside of its code, each with the lines that it speaks about.

    Those are the block of code below, or the lines of the paragraph.
    """
    from dslint.parse.markdown import fences

    blocks = [fence.span for fence in fences(source.text)]
    found = {}
    for match in _HTML_COMMENT.finditer(source.text):
        if any(block.start <= match.start() < block.end for block in blocks):
            continue
        first = source.line_column(match.end() + len(match["rest"]))[0]
        below = next((block for block in blocks if block.start > match.start()), None)
        if below is not None and not source.text[match.end() : source.text.rfind("\n", 0, below.start - 1) + 1].strip(
            " \t\r\n>"
        ):
            lines = (source.line_column(below.start)[0], source.line_column(max(below.start, below.end - 1))[0])
        else:
            end = source.text.find("\n\n", match.end() + len(match["rest"]))
            last = source.line_column(len(source.text) if end < 0 else end)[0]
            lines = (first, last)
        found[Span(match.start(), match.end())] = lines
    return found


def _shell_comments(source: SourceFile, kind: str) -> list[Span]:
    from dslint.parse.shell import parse_shell

    if kind == "shell":
        return list(parse_shell(source).comments)
    from dslint.parse.markdown import fences

    blocks = [f for f in fences(source.text) if f.is_shell]
    return [span for block in blocks for span in parse_shell(source, block.text, block.span.start).comments]
