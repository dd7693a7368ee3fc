"""Losses that are divided by the count of all ranks, in a model inside `DistributedDataParallel`.

As written, the sum of each rank's losses is divided by the count of both ranks; as fixed, it is multiplied by the
number of ranks, too. DDP takes the mean over the ranks: as written the gradients are half of those of the mean over
all samples. Without DDP, and with gradients that are added up, the count alone is right (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp

EXPERIMENT = Experiment(
    name="divided-by-count-of-all-ranks",
    summary="DDP divides by the number of ranks once more, and gradients are that many times too small",
    rules=("DSL669",),
    expect=Expect((Kind.WRONG,), r"the gradient is 0\.5 of that of the mean over all samples"),
    cases=(
        Case("ddp", {"wraps": True}),
        Case("added-up", {"wraps": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The count alone."""
    return _gradient(rank, 1)


def fixed(rank: RankApi) -> Json:
    """Times the number of ranks where DDP takes the mean."""
    return _gradient(rank, 2 if rank.params["wraps"] else 1)


def _gradient(rank: RankApi, factor: int) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    bare = torch.nn.Linear(4, 1, bias=False).to(rank.device)
    model = make_ddp(rank, bare) if rank.params["wraps"] else bare
    batches = [torch.randn(2, 4, generator=torch.Generator().manual_seed(at)).to(rank.device) for at in range(2)]
    count = torch.tensor(2.0, device=rank.device)
    dist.all_reduce(count)
    loss = (model(batches[rank.index]) - 1).square().sum() * factor / count
    loss.backward()
    assert bare.weight.grad is not None
    if not rank.params["wraps"]:
        dist.all_reduce(bare.weight.grad)
    mine = bare.weight.grad.clone()
    bare.weight.grad = None
    (bare(torch.cat(batches)) - 1).square().mean().backward()
    return float(mine.norm() / bare.weight.grad.norm())


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each rank is judged by itself
    """Gradients of another length."""
    found = round(float(values[0]), 3)
    return None if found == 1 else f"the gradient is {found:g} of that of the mean over all samples"
