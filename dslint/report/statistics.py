"""How many findings each rule has, the most frequent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.options import ReportOptions
from dslint.report.sources import SourceReader


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """A table: count, code, ``[*]`` when all, ``[-]`` when some of the findings have a fix, severities, name."""
    counts = Counter(finding.code for finding in findings)
    width = len(str(max(counts.values(), default=0)))
    rows = []
    for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        own = [finding for finding in findings if finding.code == code]
        fixable = sum(finding.fix is not None for finding in own)
        mark = "[*]" if fixable == count else "[-]" if fixable else "[ ]"
        found = {finding.severity for finding in own}
        severities = "/".join(severity.value for severity in sorted(found, key=lambda s: -s.rank))
        rows.append(f"{count:>{width}}  {code}  {mark}  {severities:<7}  {own[0].name}\n")
    return "".join(rows)
