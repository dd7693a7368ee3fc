"""Ten errors in shares of a `DistributedSampler`, and the main process prints their mean.

As written, rank 0 divides the sum of its share by the number of its samples; as fixed, sum and number are summed over
the ranks before. Shares that are alike are the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="share-printed-as-whole",
    summary="the mean that is printed is that of the share of rank 0",
    flavour="torch",
    rules=("DSL711",),
    expect=Expect((Kind.WRONG,), r"a mean of 4\.0 instead of 4\.5"),
    cases=(
        Case("other-errors", {"is_alike": False}),
        Case("alike", {"is_alike": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The mean of the own share."""
    return _evaluate(rank, is_summed=False)


def fixed(rank: RankApi) -> Json:
    """The mean of all."""
    return _evaluate(rank, is_summed=True)


def _evaluate(rank: RankApi, is_summed: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items: Any = [1.0 if rank.params["is_alike"] else float(number) for number in range(10)]
    totals = torch.zeros(2)
    for batch in DataLoader(items, 2, sampler=DistributedSampler(items, shuffle=False)):
        totals += torch.tensor([float(batch.sum()), len(batch)])
    if is_summed:
        torch.distributed.all_reduce(totals)
    rank.mark("evaluated")
    return {"mean": (totals[0] / totals[1]).item()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another mean."""
    here, expected = values[0]["mean"], reference[0]["mean"]
    return None if abs(here - expected) < 1e-6 else f"a mean of {here:.1f} instead of {expected:.1f}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case with other errors."""
    return {} if case.name == "other-errors" and subject.finding.fact("kind") == "results" else None
