"""One case: the fixed arm, the written arm twice, the verdict, and the account of a confirmed stall."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dslint.core.finding import Finding
from dslint.probe.experiment import FLAVOURS, Case, Needs
from dslint.probe.library import Entry
from dslint.probe.needs import Place, unmet
from dslint.probe.outcome import ArmOutcome, Kind, Verdict
from dslint.probe.supervisor import ProbeError, Supervisor
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
    """What a run of the probe is asked for."""

    backend: str = ""
    ranks: int = 0
    limit: float = 0.0
    explain: bool = True


def run_case(supervisor: Supervisor, entry: Entry, case: Case, place: Place, plan: Plan = Plan()) -> Report:
    """Run both arms of a case and judge them. Never raises for what an experiment does."""
    experiment = entry.experiment if not plan.limit else replace(entry.experiment, limit=plan.limit)
    backend = plan.backend or ("nccl" if supervisor.cuda else "gloo")
    base = Report(
        experiment.name, case.name, entry.rules(case), Verdict.NEEDS, "", params=case.params, backend=backend,
        expected=case.verdict,
    )  # fmt: skip
    start = time.monotonic()
    try:
        supervisor.warm(experiment.flavour)
    except ProbeError as error:
        return replace(base, reason=str(error))
    lacking = unmet(experiment.needs, place) or unmet(case.needs or Needs(), place)
    if lacking:
        return replace(base, reason=f"needs {lacking}")
    expect = experiment.expectation(case)

    def arm(fixed: bool, reference: ArmOutcome | None = None, explain: bool = False) -> tuple[ArmOutcome, Path]:
        for attempt in (1, 2, 3):
            outcome, folder = supervisor.arm(
                experiment, entry.stem, case, fixed=fixed, ranks=plan.ranks, backend=plan.backend, explain=explain
            )
            outcome = _with_oracle(entry, outcome, reference)
            if attempt == 3 or not is_noise(outcome, expect):
                break
        return outcome, folder

    try:
        fixed, _ = arm(fixed=True)
        written: list[ArmOutcome] = []
        while fixed.kind is Kind.OK and len(written) < 2:
            again, folder = arm(fixed=False, reference=fixed, explain=plan.explain and bool(written))
            written.append(again)
            if written[-1].kind in (Kind.OK, Kind.LIMIT) and not experiment.race:
                break
        verdict, reason = judge(experiment, expect, fixed, written)
        explanation = ""
        if plan.explain and verdict is Verdict.CONFIRMED and written[0].kind is Kind.STALL:
            from dslint.probe.explain import account

            explanation = account(folder, len(written[0].ranks))
    except ProbeError as error:
        return replace(base, verdict=Verdict.INCONCLUSIVE, reason=str(error), seconds=time.monotonic() - start)
    return replace(
        base, verdict=verdict, reason=reason, seconds=time.monotonic() - start, fixed=fixed, written=tuple(written),
        explanation=explanation,
    )  # fmt: skip


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
    jobs: int = 2,
) -> Iterator[Report]:
    """Run cases, ``jobs`` at a time (a stalled arm only sleeps), and yield reports in the order of ``work``."""
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

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        yield from pool.map(one, tasks)
