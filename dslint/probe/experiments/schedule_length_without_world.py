"""A schedule over `len(dataset) // batch_size` steps beside a `DistributedSampler`.

As written, the schedule counts the batches of the whole data set; as fixed, those of the loader with the sampler. As
written the run ends in the middle of the schedule. On a data set that every rank reads as a whole both ways count the
same (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="schedule-length-without-world",
    summary="the run ends before its schedule",
    rules=("DSL609",),
    expect=Expect((Kind.WRONG,), r"the last learning rate is 0\.\d+ instead of 0\.0\d*"),
    cases=(
        Case("divided", {"divides": True}),
        Case("whole", {"divides": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
BATCH, ITEMS = 2, 32


def written(rank: RankApi) -> Json:
    """From the data set."""
    return _train(rank, from_loader=False)


def fixed(rank: RankApi) -> Json:
    """From the loader."""
    return _train(rank, from_loader=True)


def _train(rank: RankApi, from_loader: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    data: Any = list(range(ITEMS))
    sampler: Any = DistributedSampler(data) if rank.params["divides"] else None
    loader: Any = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model: Any = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = len(loader) if from_loader else len(data) // BATCH
    schedule: Any = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=total)
    for rows in loader:
        optimizer.zero_grad()
        model(rows[:, None].float()).mean().backward()
        optimizer.step()
        schedule.step()
    rank.mark("trained")
    return {"last": round(float(optimizer.param_groups[0]["lr"]), 4)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another learning rate at the end."""
    here, expected = values[0]["last"], reference[0]["last"]
    return None if here == expected else f"the last learning rate is {here} instead of {expected}"
