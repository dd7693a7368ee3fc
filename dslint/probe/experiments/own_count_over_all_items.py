"""Ten samples in shares of a `DistributedSampler`, and a classifier that is always right.

As written, each rank divides what it has counted by ten; as fixed, the counts are summed over the ranks before. As
written an accuracy of 0.5 is reported. Without samples both are 0 (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="own-count-over-all-items",
    summary="the accuracy is as many times too small as there are ranks",
    flavour="torch",
    rules=("DSL648",),
    expect=Expect((Kind.WRONG,), r"an accuracy of 0\.5 instead of 1\.0"),
    cases=(Case("ten", {"items": 10}), Case("none", {"items": 0}, verdict=Verdict.NOT_REPRODUCED)),
)


def written(rank: RankApi) -> Json:
    """The own count."""
    return _evaluate(rank, is_summed=False)


def fixed(rank: RankApi) -> Json:
    """The sum of all ranks."""
    return _evaluate(rank, is_summed=True)


def _evaluate(rank: RankApi, is_summed: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items: Any = list(range(rank.params["items"]))
    sampler: Any = DistributedSampler(items, shuffle=False)
    correct = torch.zeros(())
    for batch in DataLoader(items, 2, sampler=sampler) if items else ():
        correct += len(batch)
    if is_summed:
        torch.distributed.all_reduce(correct)
    rank.mark("counted")
    return {"accuracy": correct.item() / max(len(items), 1)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another accuracy."""
    here, expected = values[0]["accuracy"], reference[0]["accuracy"]
    return None if abs(here - expected) < 1e-6 else f"an accuracy of {here} instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - the samples are the case's own
    """The case with samples."""
    return {} if case.name == "ten" else None
