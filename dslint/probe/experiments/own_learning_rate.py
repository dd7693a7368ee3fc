"""A learning rate that only rank 0 has changed before it makes its optimizer.

As written, rank 0 takes the number of its search and the other rank keeps the default: both step by the same averaged
gradient, and the replicas have other weights after one step. As fixed, the number is broadcast first. One number on
both ranks changes nothing (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, train_step, weights

EXPERIMENT = Experiment(
    name="own-learning-rate",
    summary="the ranks step by one gradient with two learning rates, and the replicas drift apart",
    rules=("DSL654",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("rank-0-alone", {"found": 0.2}),
        Case("the-same", {"found": 0.1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """What rank 0 has found stays there."""
    return _train(rank, is_told=False)


def fixed(rank: RankApi) -> Json:
    """All ranks hear of it."""
    return _train(rank, is_told=True)


def _train(rank: RankApi, is_told: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    model = make_ddp(rank, torch.nn.Linear(4, 1))
    settings = [rank.params["found"] if rank.index == 0 else 0.1]
    if is_told:
        dist.broadcast_object_list(settings, src=0)
    train_step(rank, model, torch.optim.SGD(model.parameters(), lr=settings[0]), 0)
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"
