"""The state of a `ZeroRedundancyOptimizer` that nobody has put together.

As written, rank 0 asks for `state_dict()`; as fixed, all ranks call `consolidate_state_dict()` before. As
written, torch raises on rank 0. A plain optimizer has all of its state on every rank (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, train_step

EXPERIMENT = Experiment(
    name="zero-optimizer-not-consolidated",
    summary="state_dict() of a ZeroRedundancyOptimizer raises where nothing was gathered",
    rules=("DSL666",),
    expect=Expect((Kind.RAISE,), r"Optimizer state has not been consolidated on this rank"),
    cases=(
        Case("zero", {"zero": True}),
        Case("plain", {"zero": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Nothing is put together."""
    return _save(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """The ranks put it together on rank 0."""
    return _save(rank, gathers=True)


def _save(rank: RankApi, gathers: bool) -> Json:
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make_ddp(rank)
    if rank.params["zero"]:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train_step(rank, model, optimizer, 0)
    if gathers and rank.params["zero"]:
        optimizer.consolidate_state_dict(to=0)
    return len(optimizer.state_dict()["state"]) if rank.index == 0 else 0
