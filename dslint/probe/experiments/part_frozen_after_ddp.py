"""A part of a model that is frozen after `DistributedDataParallel` has wrapped the model.

As written, the first layer is frozen below the line that wraps the model; as fixed, above it. DDP waits for the
gradients of what was trainable when it was made: the second forward raises. Where nothing is frozen both train (the
control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="part-frozen-after-ddp",
    summary="DDP raises in the second step when a part was frozen after it was wrapped",
    rules=("DSL716",),
    expect=Expect((Kind.RAISE,), r"RuntimeError: Expected to have finished reduction in the prior iteration"),
    cases=(
        Case("frozen", {"freezes": True}),
        Case("never-frozen", {"freezes": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Frozen after it is wrapped."""
    return _train(rank, is_late=True)


def fixed(rank: RankApi) -> Json:
    """Frozen before that."""
    return _train(rank, is_late=False)


def _train(rank: RankApi, is_late: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    freezes = rank.params["freezes"]
    module[0].requires_grad_(is_late or not freezes)
    model = make_ddp(rank, module)
    module[0].requires_grad_(not freezes)
    optimizer = make_optimizer(model)
    for number in range(3):
        train_step(rank, model, optimizer, number)
    return "trained"
