"""How many findings each rule has, the most frequent first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from dslint.core.finding import Finding
from dslint.report.options import ReportOptions
from dslint.report.place import fix_mark
from dslint.report.sources import SourceReader


@dataclass(frozen=True, slots=True)
class _Row:
    code: str
    name: str
    severities: list[str]
    count: int
    fixable: int


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """A table: count, code, ``[*]`` when ``--fix`` mends all, ``[-]`` when it mends some, severities, name."""
    rows = list(_rows(findings))
    width = len(str(max((row.count for row in rows), default=0)))
    lines = []
    for row in rows:
        mark = "[*]" if row.fixable == row.count else "[-]" if row.fixable else "[ ]"
        lines.append(f"{row.count:>{width}}  {row.code}  {mark}  {'/'.join(row.severities):<7}  {row.name}\n")
    return "".join(lines)


def render_json(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """The same counts for programs; the object is that of the JSON report with ``statistics`` for ``findings``."""
    import json

    from dslint import __version__
    from dslint.report.jsonout import FORMAT_VERSION

    rows = [asdict(row) for row in _rows(findings)]
    return json.dumps({"version": FORMAT_VERSION, "dslint": __version__, "statistics": rows}, indent=2) + "\n"


def _rows(findings: Sequence[Finding]) -> Iterator[_Row]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    for code, own in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        found = sorted({finding.severity for finding in own}, key=lambda s: -s.rank)
        fixable = sum(bool(fix_mark(finding)) for finding in own)
        yield _Row(code, own[0].name, [s.value for s in found], len(own), fixable)
