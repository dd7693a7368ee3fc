"""A layer that is replaced after `DistributedDataParallel` has wrapped the model.

As written, the last layer becomes a new one with the same numbers on every rank, and the wrapper stays; as fixed, the
model is wrapped again. As written nothing reduces the gradients of the new layer: the ranks have other weights after
one step. A layer that is replaced before the model is wrapped changes nothing (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step, weights

EXPERIMENT = Experiment(
    name="part-replaced-after-ddp",
    summary="gradients of the new layer are not reduced, and the ranks drift apart",
    rules=("DSL658",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("after", {"late": True}),
        Case("before", {"late": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The wrapper from before."""
    return _train(rank, again=False)


def fixed(rank: RankApi) -> Json:
    """A new one."""
    return _train(rank, again=True)


def _train(rank: RankApi, again: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    new = torch.nn.Linear(4, 1).to(rank.device)
    if not rank.params["late"]:
        module[1] = new
    model = make_ddp(rank, module, find_unused_parameters=True)
    if rank.params["late"]:
        module[1] = new
    if again:
        model = make_ddp(rank, module, find_unused_parameters=True)
    train_step(rank, model, make_optimizer(model), 0)
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"
