"""A report to keep: what ran, both arms, stacks, versions, how to repeat it."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.probe.outcome import ArmOutcome, Kind
from dslint.probe.report import Run, why
from dslint.probe.runner import Report


def render(run: Run) -> str:
    """The report as Markdown."""
    lines = ["# Probe report", "", f"{run.line()}. {run.summary.machine}.", ""]
    lines += ["| experiment | rules | verdict | seconds | what was seen |", "| --- | --- | --- | --- | --- |"]
    for report in run.reports:
        told = report.reason.replace("|", "\\|")
        rules = ", ".join(report.rules) or "-"
        name = f"`{report.experiment}/{report.case}`"
        lines.append(f"| {name} | {rules} | {report.verdict.value} | {report.seconds:.1f} | {told} |")
    for report in run.reports:
        lines += ["", *_section(report)]
    if run.without:
        lines += ["", "## Findings without an experiment", ""]
        lines += [f"- `{finding.location}` {finding.code} {finding.name}: {why(finding)}" for finding in run.without]
    return "\n".join(lines) + "\n"


def _section(report: Report) -> Iterator[str]:
    yield f"## {report.experiment}/{report.case}: {report.verdict.value}"
    yield ""
    yield f"{report.reason[:1].upper()}{report.reason[1:]}."
    if report.explanation:
        yield ""
        yield f"Account of the collectives: {report.explanation}."
    yield ""
    for finding in report.findings:
        yield f"- finding: `{finding.location}` {finding.code} {finding.name}: {finding.message}"
    if report.params:
        yield "- parameters: " + ", ".join(f"`{name}` = `{value!r}`" for name, value in report.params.items())
    yield f"- repeat: `dslint probe --case {report.experiment}/{report.case}`"
    if report.fixed:
        yield from _arm("as fixed", report.fixed)
    for arm in report.written:
        yield from _arm("as written", arm)


def _arm(label: str, arm: ArmOutcome) -> Iterator[str]:
    yield f"- {label}: {arm.kind.value} after {arm.seconds:.2f} s: {arm.sentence()}"
    for rank in arm.ranks:
        if rank.kind is Kind.OK:
            continue
        yield f"    - rank {rank.rank}: {rank.kind.value}: {' '.join(rank.text.split())[:300]}"
        if rank.stack:
            yield "        - stack: `" + " < ".join(rank.stack[:8]) + "`"
        if rank.marks:
            yield f"        - last sign of progress: {rank.marks[-1]}"
