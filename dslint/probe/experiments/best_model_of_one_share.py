"""Rank 0 keeps the best model by its own share of the evaluation data.

As written, rank 0 compares the mean loss of what a `DistributedSampler` gives it; as fixed, the ranks sum up losses and
counts first. A model that is better on all data and worse on the share of rank 0 is not kept. Where each rank goes
through all data, rank 0 keeps the same as all (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp

EXPERIMENT = Experiment(
    name="best-model-of-one-share",
    summary="rank 0 keeps another model than the one with the lowest loss of all data",
    rules=("DSL674",),
    expect=Expect((Kind.WRONG,), r"kept model 1, and model 0 is the best"),
    cases=(
        Case("share", {"divided": True}),
        Case("whole", {"divided": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
# What each of two models should give for each of four rows, and misses by.
_MISSES = ((0.2, 0.0, 0.2, 0.0), (0.1, 0.6, 0.1, 0.6))


def written(rank: RankApi) -> Json:
    """The share of rank 0."""
    return _kept(rank, reduces=False)


def fixed(rank: RankApi) -> Json:
    """All shares."""
    return _kept(rank, reduces=True)


def _kept(rank: RankApi, reduces: bool) -> Json:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    rank.init()
    best, kept = float("inf"), -1
    for number, misses in enumerate(_MISSES):
        model = make_ddp(rank)
        rows = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            wanted = model(rows.to(rank.device)).cpu() + torch.tensor(misses)[:, None]
        data = TensorDataset(rows, wanted)
        sampler = DistributedSampler(data, shuffle=False) if rank.params["divided"] else None
        counts = torch.zeros(2, device=rank.device)
        for x, y in DataLoader(data, 2, sampler=sampler):
            with torch.no_grad():
                loss = (model(x.to(rank.device)) - y.to(rank.device)).square().sum()
            counts += torch.stack([loss, torch.tensor(float(len(x)), device=rank.device)])
        if reduces:
            dist.all_reduce(counts)
        mean = float(counts[0] / counts[1])
        if mean < best:
            best, kept = mean, number
    return kept


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the best is known
    """What rank 0 has kept."""
    return None if values[0] == 0 else f"rank 0 has kept model {values[0]}, and model 0 is the best"
