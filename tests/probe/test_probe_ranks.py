"""The value oracles and parameters of the experiments about ranks that a launcher gives."""

from __future__ import annotations

import pytest

from dslint.core.finding import Finding, Severity
from dslint.core.source import SourceFile, Span
from dslint.probe.experiment import Subject
from dslint.probe.experiments import local_rank_argument, local_rank_not_passed, processes_squared
from dslint.probe.experiments import rank_environment_literal as literal

GROUP = [{"world": 2, "rank": r, "device": r, "error": None} for r in (0, 1)]


def subject(**facts: str | int) -> Subject:
    place = SourceFile("train.py", "x").location(Span(0, 1))
    return Subject(Finding("DSL000", "x", Severity.ERROR, "m", place, facts=tuple(sorted(facts.items()))))


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (GROUP, None),
        ([{**n, "error": "DistStoreError"} for n in GROUP], "the group never forms: 2 processes, DistStoreError"),
        ([{**n, "world": 1} for n in GROUP], "2 processes, each in a world of 1"),
        ([{**n, "device": 0} for n in GROUP], "2 processes choose device 0"),
    ],
)
def test_variables_written_over(seen: list[dict[str, object]], says: str | None) -> None:
    assert literal.wrong([seen], [GROUP]) == says


def test_a_finding_names_the_variable() -> None:
    cases = {case.name: case for case in literal.EXPERIMENT.cases}
    found = subject(variable="RANK", value="3")
    assert literal.parameters(found, cases["RANK"]) == {"name": "RANK", "text": "3"}
    assert literal.parameters(found, cases["WORLD_SIZE"]) is None


def test_workers_are_counted() -> None:
    two = [{"worker": r, "world": 2, "error": None} for r in (0, 1)]
    assert processes_squared.wrong([two], [two]) is None
    assert processes_squared.wrong([two + two], [two]) == "4 workers instead of 2"
    failing = [{**n, "error": "DistNetworkError"} for n in two]
    assert processes_squared.wrong([failing], [two]) == "the workers fail: DistNetworkError"


def test_the_default_of_the_argument() -> None:
    right = [{"world": 2, "device": r} for r in (0, 1)]
    assert local_rank_not_passed.wrong([right], [right]) is None
    assert "world of 1" in str(local_rank_not_passed.wrong([[{"world": 1, "device": -1}] * 2], [right]))
    assert "device 0" in str(local_rank_not_passed.wrong([[{"world": 2, "device": 0}] * 2], [right]))
    cases = {case.name: case for case in local_rank_not_passed.EXPERIMENT.cases}
    assert local_rank_not_passed.parameters(subject(by="run", default=0), cases["device-0"]) == {"default": 0}
    assert local_rank_not_passed.parameters(subject(by="run", default=0), cases["alone"]) is None


def test_the_spellings_that_the_script_declares() -> None:
    cases = {case.name: case for case in local_rank_argument.EXPERIMENT.cases}
    parameters = local_rank_argument.parameters
    assert parameters(subject(by="deepspeed", accepts=""), cases["deepspeed-undeclared"]) == {"declared": ["--lr"]}
    found = subject(by="launch", accepts="--local_rank")
    assert parameters(found, cases["launch-underscore-only"]) == {"declared": ["--local_rank"]}
    assert parameters(found, cases["launch-use-env"]) is None
