"""A model that is moved or cast after `DistributedDataParallel` has taken hold of its parameters.

As written, the model is cast to double precision and back between two steps; as fixed, it is wrapped again after that.
The cast gives each parameter a new gradient accumulator, without the hook of DDP: as written the ranks have other
weights after the next step. A cast before the model is wrapped changes nothing (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step, weights

EXPERIMENT = Experiment(
    name="moved-after-ddp",
    summary="gradients are not reduced, and the ranks drift apart",
    rules=("DSL294",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("cast", {"late": True}),
        Case("cast-before", {"late": False}, verdict=Verdict.NOT_REPRODUCED),
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
    module = torch.nn.Linear(4, 1)
    if not rank.params["late"]:
        module.double().float()
    model = make_ddp(rank, module)
    optimizer = make_optimizer(model)
    train_step(rank, model, optimizer, 0)
    if rank.params["late"]:
        module.double().float()
    if again:
        model = make_ddp(rank, module)
    train_step(rank, model, optimizer, 1)
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"
