"""One line a result: ``path:line:col: CODE VERDICT reason``, or the name of the experiment in place of a path."""

from __future__ import annotations

from dslint.core.finding import Finding
from dslint.probe.report import Run, why


def render(run: Run) -> str:
    """The report as lines."""
    lines = []
    for report in run.reports:
        told = f"{report.verdict.value}: {report.reason}"
        if report.explanation:
            told += f" ({report.explanation})"
        if report.findings:
            lines += [f"{_place(finding)}: {finding.code} {told}" for finding in report.findings]
        else:
            lines.append(f"{report.experiment}/{report.case}: {told}")
    lines += [f"{_place(finding)}: {finding.code} no experiment: {why(finding)}" for finding in run.without]
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def _place(finding: Finding) -> str:
    region = finding.location.region
    return f"{finding.location.path}:{region.line}:{region.column}"
