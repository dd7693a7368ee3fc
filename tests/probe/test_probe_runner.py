"""Which arms a case runs, and how often: a runner that has the outcomes ready, no processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslint.probe.arms import Arm, ArmRunner
from dslint.probe.experiment import Expect, Experiment
from dslint.probe.needs import Place
from dslint.probe.outcome import ArmOutcome, Kind, RankOutcome, Verdict, combine
from dslint.probe.registry import entries
from dslint.probe.runner import Plan, run_case

ENTRY = next(entry for entry in entries() if entry.experiment.name == "collective-under-rank-guard")
CASE = replace(ENTRY.experiment.cases[0], expect=Expect((Kind.STALL,), "barrier"))


def outcome(kind: Kind) -> ArmOutcome:
    return combine((RankOutcome(0, kind, None, "barrier all_reduce"), RankOutcome(1, Kind.OK)), 0.1)


class Ready(ArmRunner):
    """Gives the outcomes of a list, one after the other, and notes which arm was asked for."""

    def __init__(self, fixed: list[Kind], written: list[Kind]) -> None:
        self.versions = {}
        self.left = {True: fixed, False: written}
        self.asked: list[bool] = []

    def backend(self, experiment: Experiment, world: int = 0) -> str:
        return "gloo"

    def warm(self, flavour: str) -> None:
        pass

    def _run(self, arm: Arm) -> tuple[ArmOutcome, Path]:
        self.asked.append(arm.fixed)
        return outcome(self.left[arm.fixed].pop(0)), Path()

    def _server_died(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("fixed", "written", "runs", "asked", "verdict"),
    [
        ([Kind.OK], [Kind.STALL, Kind.STALL], 2, [True, False, False], Verdict.CONFIRMED),
        ([Kind.OK], [Kind.STALL], 1, [True, False], Verdict.CONFIRMED),
        ([Kind.OK], [Kind.OK], 2, [True, False], Verdict.NOT_REPRODUCED),
        # A starved machine can make processes that start look as if they waited for each other: never twice.
        ([Kind.STALL, Kind.OK], [Kind.STALL], 1, [True, True, False], Verdict.CONFIRMED),
        ([Kind.STALL, Kind.STALL], [], 2, [True, True], Verdict.INCONCLUSIVE),
        ([Kind.RAISE], [], 2, [True], Verdict.INCONCLUSIVE),
    ],
)
def test_the_arms_of_a_case(
    fixed: list[Kind], written: list[Kind], runs: int, asked: list[bool], verdict: Verdict
) -> None:
    ready = Ready(fixed, written)
    report = run_case(ready, ENTRY, CASE, Place(0, False, {}), Plan(explain=False, runs=runs))
    assert (report.verdict, ready.asked) == (verdict, asked), report.reason
