"""Losses that each rank divides by its own count, in a model inside `DistributedDataParallel`.

As written, a rank with one sample and a rank with three take the mean of their own; as fixed, the sum is divided by the
count of both ranks and multiplied by their number. As written the gradient is not that of the mean over all samples.
With as many samples on both ranks it is (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp

EXPERIMENT = Experiment(
    name="mean-of-own-count",
    summary="the mean of the ranks' means is not the mean over all samples",
    rules=("DSL670",),
    expect=Expect((Kind.WRONG,), r"the gradient is not that of the mean over all samples"),
    cases=(
        Case("one-and-three", {"counts": [1, 3]}),
        Case("two-and-two", {"counts": [2, 2]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The mean of each rank."""
    return _gradient(rank, of_all=False)


def fixed(rank: RankApi) -> Json:
    """The sum, divided by the count of both ranks."""
    return _gradient(rank, of_all=True)


def _gradient(rank: RankApi, of_all: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    bare = torch.nn.Linear(4, 1, bias=False).to(rank.device)
    model = make_ddp(rank, bare)
    counts = list(rank.params["counts"])
    batches = [
        torch.randn(n, 4, generator=torch.Generator().manual_seed(at)).to(rank.device) for at, n in enumerate(counts)
    ]
    count = torch.tensor(float(counts[rank.index]), device=rank.device)
    if of_all:
        dist.all_reduce(count)
        count = count / 2
    ((model(batches[rank.index]) - 1).square().sum() / count).backward()
    assert bare.weight.grad is not None
    mine = bare.weight.grad.clone()
    bare.weight.grad = None
    (bare(torch.cat(batches)) - 1).square().mean().backward()
    return float((mine - bare.weight.grad).norm())


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each rank is judged by itself
    """Another gradient."""
    return None if float(values[0]) < 1e-5 else "the gradient is not that of the mean over all samples"
