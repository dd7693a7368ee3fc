"""A part of a model that becomes trainable after `DistributedDataParallel` has wrapped the model.

As written, the first layer is frozen when the model is wrapped, and trainable in the steps; as fixed, it is frozen
after that. DDP reduces only what required gradients when it was made: as written the layer has other weights on each
rank. Where nothing is frozen both are equal (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step, weights

EXPERIMENT = Experiment(
    name="thawed-after-ddp",
    summary="each rank trains the layer by its own data",
    rules=("DSL279",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("frozen", {"freezes": True}),
        Case("never-frozen", {"freezes": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Frozen before it is wrapped."""
    return _train(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """Frozen after that."""
    return _train(rank, is_early=False)


def _train(rank: RankApi, is_early: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    module[0].requires_grad_(not (is_early and rank.params["freezes"]))
    model = make_ddp(rank, module)
    module[0].requires_grad_(True)
    optimizer = make_optimizer(model)
    for number in range(2):
        train_step(rank, model, optimizer, number)
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Of the optimizer another experiment tells."""
    return {} if subject.finding.fact("ddp") and case.name == "frozen" else None
