"""Parameters that are replaced after the optimizer was made.

As written, the optimizer is made first: what is put in afterwards never moves. As fixed, it is made afterwards.
Weights that are copied into the parameters leave them in the model (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step

EXPERIMENT = Experiment(
    name="parameters-replaced-after-optimizer",
    summary="no step changes the parameters that came after the optimizer",
    rules=("DSL663",),
    expect=Expect((Kind.WRONG,), r"three steps have not changed the last layer"),
    cases=(
        Case("part", {"how": "part"}),
        Case("assign", {"how": "assign"}),
        Case("copied", {"how": "copied"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The optimizer first."""
    return _train(rank, late=False)


def fixed(rank: RankApi) -> Json:
    """The optimizer afterwards."""
    return _train(rank, late=True)


def _train(rank: RankApi, late: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = make_optimizer(module)
    if rank.params["how"] == "part":
        module[1] = torch.nn.Linear(4, 1).to(rank.device)
    else:
        state = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(state, assign=rank.params["how"] == "assign")
    model = make_ddp(rank, module)
    optimizer = make_optimizer(module) if late else optimizer
    before = module[1].weight.detach().clone()
    for step in range(3):
        train_step(rank, model, optimizer, step)
    return bool((module[1].weight.detach() != before).any())


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each rank tells
    """A layer that stays as it was."""
    return None if all(values) else "three steps have not changed the last layer"
