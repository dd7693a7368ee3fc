"""A number computed from each rank's own data becomes a plain attribute of the model that is wrapped.

As written, each rank builds its model with the mean of its own share; as fixed, with the mean over all ranks.
`DistributedDataParallel` makes parameters and buffers equal and nothing else: the replicas have equal weights and give
different outputs for the same input. A buffer is made equal (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="model-built-from-own-data",
    summary="replicas with equal weights compute different functions",
    rules=("DSL276",),
    expect=Expect((Kind.WRONG,), r"for the same input rank 1 gives another output than rank 0, with equal weights"),
    cases=(
        Case("attribute", {"buffer": False}),
        Case("buffer", {"buffer": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The mean of this rank's share."""
    return _train(rank, shared=False)


def fixed(rank: RankApi) -> Json:
    """The mean over all ranks."""
    return _train(rank, shared=True)


def _train(rank: RankApi, shared: bool) -> Json:
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer, train_step, weights

    class Scaled(torch.nn.Module):
        def __init__(self, mean: Any, as_buffer: bool) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            if as_buffer:
                self.register_buffer("mean", mean)
            else:
                self.mean = mean

        def forward(self, x: Any) -> Any:
            return self.layer(x - self.mean)

    rank.init()
    mean = inputs(rank, 0).mean()
    if shared:
        dist.all_reduce(mean)
        mean /= rank.world
    model = make_ddp(rank, Scaled(mean, rank.params["buffer"]))
    optimizer = make_optimizer(model)
    for number in range(2):
        train_step(rank, model, optimizer, number)
    with torch.no_grad():
        output = model(torch.ones(1, 4, device=rank.device))
    return {"weights": weights(model), "output": float(output)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Other outputs."""
    for index, found in enumerate(values[1:], 1):
        if abs(found["output"] - values[0]["output"]) > 1e-5:
            same = all(abs(a - b) < 1e-6 for a, b in zip(found["weights"], values[0]["weights"], strict=True))
            how = "equal" if same else "different"
            return f"for the same input rank {index} gives another output than rank 0, with {how} weights"
    return None
