"""A stream that each worker of its loader goes through from the beginning.

As written, the items are divided by rank only; as fixed, by rank and worker. Two ranks, a loader with some workers, and
the numbers that a rank gets are counted. The control has one worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="items-repeated-by-every-worker",
    summary="every item comes once for each worker of the loader",
    rules=("DSL616",),
    expect=Expect((Kind.WRONG,), r"times"),
    cases=(
        Case("two-workers", {"workers": 2}),
        Case("one-worker", {"workers": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_ITEMS = 8


def written(rank: RankApi) -> Json:
    """Divided by rank."""
    return _count(rank, by_worker=False)


def fixed(rank: RankApi) -> Json:
    """Divided by rank and worker."""
    return _count(rank, by_worker=True)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Each item comes once."""
    return f"each item comes {values[0]} times" if values[0] != reference[0] else None


def _count(rank: RankApi, by_worker: bool) -> Json:
    import torch.distributed as dist
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    rank.init()
    share = range(dist.get_rank(), _ITEMS, dist.get_world_size())

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info: Any = get_worker_info()
            yield from share[info.id :: info.num_workers] if by_worker else share

    loader = DataLoader(Stream(), batch_size=None, num_workers=int(str(rank.params["workers"])))
    found = [int(item) for item in loader]
    return max(found.count(item) for item in share)
