"""Places and messages as one line of text, whatever the linted file contains."""

from __future__ import annotations

import re

from dslint.core.finding import Confidence, Finding
from dslint.core.fix import Safety
from dslint.core.source import Location
from dslint.translate import Translator, english

# Terminal escapes, line breaks (also the ones that only some programs know) and overrides of the writing direction.
_HIDDEN = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)},
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},
}
_ONE_LINE = {**_HIDDEN, ord("\n"): " ", ord("\r"): None, ord("\t"): " "}

# Characters that no XML document may hold, also not by their number.
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def visible(text: str) -> str:
    """The text with control characters spelled out, so that a linted file cannot write to the terminal."""
    return text.translate(_HIDDEN)


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    return text.translate(_ONE_LINE).strip()


def place(location: Location) -> str:
    """``path:line:col``, in a notebook ``path:cell N:line:col``."""
    region = location.region
    cell = f"cell {region.cell}:" if region.cell is not None else ""
    return f"{one_line(location.path)}:{cell}{region.line}:{region.column}"


def message_of(finding: Finding) -> str:
    """The message on one line."""
    return one_line(finding.message)


def told(finding: Finding) -> str:
    """The message with the cell of a notebook, whose lines a reader of the file does not know."""
    region = finding.location.region
    lead = "" if region.cell is None else f"cell {region.cell}, line {region.line}: "
    return lead + message_of(finding)


def where_in_file(finding: Finding) -> tuple[int, int]:
    """The first and the last line of the file; of a notebook the first one, as its cells have no lines there."""
    region = finding.location.region
    if region.cell is not None:
        return 1, 1
    last = region.end_line - (region.end_column <= 1 and region.end_line > region.line)
    return region.line, last


def further(finding: Finding) -> list[str]:
    """What stands below the message: what it assumes, what to do, other places, the page of the rule."""
    from dslint.report.links import rule_url

    lines = [f"{finding.confidence.value}: {line}" for line in assumption_lines(finding)]
    lines += [one_line(finding.hint)] if finding.hint else []
    lines += [f"{place(other)}: {one_line(other.label)}" if other.label else place(other) for other in finding.related]
    return [*lines, url] if (url := rule_url(finding.code)) else lines


def suggestion_of(finding: Finding, translate: Translator = english) -> str:
    """``; did you mean `x`?`` where the hint names the right word and the message does not; else empty."""
    hint = one_line(finding.hint)
    meant = re.search(r"`[^`]+`", hint)
    if meant is None or meant[0] in finding.message:
        return ""
    asked = (f"Did you mean {meant[0]}?", f"Did you mean {meant[0]}", f"Write {meant[0]}")
    return translate(f"; did you mean {meant[0]}?") if hint in map(translate, asked) else ""


def assumption_lines(finding: Finding) -> list[str]:
    """What the finding rests on, a sentence each; none where it is certain."""
    return [f"assumes that {one_line(words)}" for words in finding.assumptions]


def confidence_mark(finding: Finding) -> str:
    """``, likely`` where the finding rests on an assumption."""
    return "" if finding.confidence is Confidence.CERTAIN else f", {finding.confidence.value}"


def fix_mark(finding: Finding) -> str:
    """``[*]`` when ``--fix`` alone mends the finding; an unsafe fix needs a decision first."""
    return "[*]" if finding.fix is not None and finding.fix.safety is Safety.SAFE else ""
