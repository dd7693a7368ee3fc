"""An optimizer that is made after a forward pass of a model that `fully_shard` has taken.

As written, the model runs without a gradient before the optimizer is made; as fixed, the optimizer is made first. As
written it holds the whole tensors that the pass has left in the root, and five steps change nothing in the root. A root
that is sharded after each pass has its own parameters again (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs

EXPERIMENT = Experiment(
    name="optimizer-after-sharded-forward",
    summary="the optimizer holds tensors that a forward pass has left whole, and the root never changes",
    rules=("DSL671",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"five steps leave the parameters of the root as they were"),
    cases=(
        Case("root", {"again": None}),
        Case("sharded-again", {"again": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 5


def written(rank: RankApi) -> Json:
    """The forward pass first."""
    return _train(rank, runs=True)


def fixed(rank: RankApi) -> Json:
    """The optimizer first."""
    return _train(rank, runs=False)


def _train(rank: RankApi, runs: bool) -> Json:
    import torch
    from torch.distributed.fsdp import fully_shard

    rank.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).to(rank.device)
    fully_shard(model[0])
    fully_shard(model, reshard_after_forward=rank.params["again"])
    before = model[1].weight.full_tensor().detach().clone()
    if runs:
        with torch.no_grad():
            model(inputs(rank, 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(STEPS):
        (model(inputs(rank, number)) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {number}")
    model.reshard()
    return float((model[1].weight.full_tensor().detach() - before).abs().max())


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each rank is judged by itself
    """Parameters that no step changes."""
    return "five steps leave the parameters of the root as they were" if not any(values) else None
