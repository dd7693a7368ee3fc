"""The report for people on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding
from dslint.probe.outcome import ArmOutcome, Kind, Verdict
from dslint.probe.report import Run, why
from dslint.probe.runner import Report
from dslint.rules.registry import BY_CODE

_COLORS = {
    Verdict.CONFIRMED: "1;31", Verdict.NOT_REPRODUCED: "1;32", Verdict.NEEDS: "1;36", Verdict.INCONCLUSIVE: "1;33",
}  # fmt: skip


def render(run: Run) -> str:
    """The report as text."""
    blocks = ["\n".join(_block(report, run.color)) + "\n" for report in run.reports]
    if run.without:
        blocks.append(
            "\n".join(["Without an experiment:", *(f"  {_line(finding)}: {why(finding)}" for finding in run.without)])
            + "\n"
        )
    return "\n".join(blocks)


def _line(finding: Finding) -> str:
    info = BY_CODE.get(finding.code)
    return f"{finding.location}: {finding.code} {info.name if info else finding.name}"


def _block(report: Report, color: bool) -> Iterator[str]:
    verdict = report.verdict.value
    yield f"\x1b[{_COLORS[report.verdict]}m{verdict}\x1b[0m {report.reason}" if color else f"{verdict} {report.reason}"
    for finding in report.findings:
        yield f"  finding     {_line(finding)}"
    yield f"  experiment  {report.experiment}/{report.case} ({report.backend}, {report.seconds:.1f} s)"
    shown = {name: value for name, value in report.params.items() if not isinstance(value, str) or len(value) < 60}
    if shown:
        yield "  parameters  " + ", ".join(f"{name}={value!r}" for name, value in shown.items())
    if report.fixed is not None:
        yield f"  as fixed    {report.fixed.sentence()} ({report.fixed.seconds:.1f} s)"
    for number, arm in enumerate(report.written):
        label = "as written" if number == 0 else "once more "
        yield f"  {label}  {arm.sentence()} ({arm.seconds:.1f} s)"
    if report.explanation:
        yield f"  account     {report.explanation}"
    if report.written and report.verdict is not Verdict.NOT_REPRODUCED:
        yield from _stacks(report.written[0])


def _stacks(arm: ArmOutcome) -> Iterator[str]:
    for rank in arm.ranks:
        if rank.stack and rank.kind is not Kind.OK:
            yield f"  stack of {rank.rank}  " + " < ".join(rank.stack[:5])
