"""One case: the fixed arm, the written arm twice, the verdict, and the account of a confirmed stall."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dslint.core.finding import Finding
from dslint.probe.arms import ArmRunner, ProbeError
from dslint.probe.experiment import FLAVOURS, Case, Needs
from dslint.probe.needs import Place, unmet
from dslint.probe.outcome import ArmOutcome, Kind, Verdict
from dslint.probe.registry import Entry
from dslint.probe.supervisor import Supervisor
from dslint.probe.verdict import is_noise, judge


@dataclass(frozen=True, slots=True)
class Report:
    """What was run for a case, and what it says.

    Attributes:
        reason: one sentence behind the verdict.
        explanation: the account of a stall by the flight recorder, or empty.
        seconds: wall time of all arms.
        findings: what was probed, when it was findings of a project.
    """

    experiment: str
    case: str
    rules: tuple[str, ...]
    verdict: Verdict
    reason: str
    seconds: float = 0.0
    fixed: ArmOutcome | None = None
    written: tuple[ArmOutcome, ...] = ()
    explanation: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    backend: str = ""
    findings: tuple[Finding, ...] = ()
    expected: Verdict = Verdict.CONFIRMED


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of the probe is asked for; ``runs``: how often a written arm must fail to confirm."""

    backend: str = ""
    ranks: int = 0
    limit: float = 0.0
    explain: bool = True
    runs: int = 2


def run_case(supervisor: ArmRunner, entry: Entry, case: Case, place: Place, plan: Plan = Plan()) -> Report:
    """Run both arms of a case and judge them. Never raises for what an experiment does."""
    entry = entry.sized(case)
    if plan.limit:
        entry = entry._replace(experiment=replace(entry.experiment, limit=plan.limit))
    experiment = entry.experiment
    report = Report(
        experiment.name, case.name, entry.rules(case), Verdict.NEEDS, "", params=case.params, expected=case.verdict,
        backend=plan.backend or supervisor.backend(experiment, plan.ranks),
    )  # fmt: skip
    start = time.monotonic()
    try:
        supervisor.warm(experiment.flavour)
    except ProbeError as error:
        return replace(report, reason=str(error))
    lacking = unmet(experiment.needs, place) or unmet(case.needs or Needs(), place)
    if lacking:
        return replace(report, reason=f"needs {lacking}")
    try:
        report = _Arms(supervisor, entry, case, plan).judged(report)
    except ProbeError as error:
        report = replace(report, verdict=Verdict.INCONCLUSIVE, reason=str(error))
    return replace(report, seconds=time.monotonic() - start)


class _Arms:
    """The arms of one case."""

    def __init__(self, supervisor: ArmRunner, entry: Entry, case: Case, plan: Plan) -> None:
        self.supervisor = supervisor
        self.entry = entry
        self.case = case
        self.plan = plan
        self.expect = entry.experiment.expectation(case)

    def judged(self, report: Report) -> Report:
        """The report with outcomes and verdict. The fixed arm comes first: when it fails, nothing else can be said."""
        fixed, folder = self.run(fixed=True)
        if fixed.kind is Kind.STALL:
            # On a machine with much more to do, processes that start can look as if they waited for each other.
            fixed, folder = self.run(fixed=True)
        written: list[ArmOutcome] = []
        while fixed.kind is Kind.OK and len(written) < self.plan.runs:
            again, folder = self.run(reference=fixed, explain=self.plan.explain and bool(written))
            written.append(again)
            if again.kind in (Kind.OK, Kind.LIMIT) and not self.entry.experiment.race:
                break
        report = replace(report, fixed=fixed, written=tuple(written))
        for arm in (fixed, *written):
            if "Duplicate GPU" in arm.text:
                return replace(report, reason=f"needs a GPU for each rank: {arm.sentence()}")
        verdict, reason = judge(self.entry.experiment, self.expect, fixed, written, self.plan.runs)
        explanation = ""
        if self.plan.explain and verdict is Verdict.CONFIRMED and written[-1].kind is Kind.STALL:
            from dslint.probe.explain import account

            explanation = account(folder, len(written[-1].ranks), _lines(self.entry, written[-1]))
        return replace(report, verdict=verdict, reason=reason, explanation=explanation)

    def run(
        self, *, fixed: bool = False, reference: ArmOutcome | None = None, explain: bool = False
    ) -> tuple[ArmOutcome, Path]:
        """One arm, judged by the value oracle; once more when the machine got in the way."""
        for attempt in (1, 2, 3):
            outcome, folder = self.supervisor.arm(
                self.entry.experiment, self.entry.stem, self.case, fixed=fixed, ranks=self.plan.ranks,
                backend=self.plan.backend, explain=explain,
            )  # fmt: skip
            outcome = _with_oracle(self.entry, outcome, reference)
            if attempt == 3 or not is_noise(outcome, self.expect):
                break
        return outcome, folder


def _lines(entry: Entry, arm: ArmOutcome) -> dict[int, str]:
    """Where in the file of the experiment each waiting rank stands: ``file:line``."""
    file = Path(entry.module.__file__ or "").name
    found = {}
    for rank in arm.ranks:
        frame = next((frame for frame in rank.stack if f"({file}:" in frame), "")
        if frame:
            found[rank.rank] = frame.rpartition("(")[2].rstrip(")")
    return found


def _with_oracle(entry: Entry, outcome: ArmOutcome, reference: ArmOutcome | None) -> ArmOutcome:
    if outcome.kind is not Kind.OK or entry.oracle is None:
        return outcome
    reason = entry.oracle(outcome.values, (reference or outcome).values)
    return replace(outcome, kind=Kind.WRONG, reason=reason) if reason else outcome


def run_all(
    work: Iterable[tuple[Entry, Case, tuple[Finding, ...]]],
    supervisor: Supervisor,
    place: Callable[[], Place],
    plan: Plan,
    jobs: int = 0,
) -> Iterator[Report]:
    """Run cases, ``jobs`` at a time, and yield reports in the order of ``work``.

    An arm that stands still only sleeps, so the default is three a core.
    """
    tasks = list(work)
    # One warm-up for all, before any fork; a library that is missing is told with each case that needs it.
    for flavour in sorted({entry.experiment.flavour for entry, _, _ in tasks}, key=FLAVOURS.index, reverse=True):
        with suppress(ProbeError):
            supervisor.warm(flavour)
            break
    where = place()

    def one(task: tuple[Entry, Case, tuple[Finding, ...]]) -> Report:
        entry, case, findings = task
        return replace(run_case(supervisor, entry, case, where, plan), findings=findings)

    with ThreadPoolExecutor(max_workers=jobs or 3 * (os.cpu_count() or 1)) as pool:
        yield from pool.map(one, tasks)
