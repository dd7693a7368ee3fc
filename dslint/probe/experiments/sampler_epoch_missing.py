"""A `DistributedSampler` that shuffles, in an epoch loop without `set_epoch`.

As written, the loop runs two epochs; as fixed, `sampler.set_epoch(epoch)` stands before each. The sampler seeds its
shuffle with the number of the epoch, and without the call that number is 0 for ever: every epoch has the same order.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="sampler-epoch-missing",
    summary="every epoch has the same order",
    expect=Expect((Kind.WRONG,), r"the order of all \d+ epochs is the same"),
    cases=(Case("two-epochs", {"epochs": 2}),),
)


def written(rank: RankApi) -> Json:
    """No `set_epoch`."""
    return _orders(rank, tell=False)


def fixed(rank: RankApi) -> Json:
    """`set_epoch` before each epoch."""
    return _orders(rank, tell=True)


def _orders(rank: RankApi, tell: bool) -> list[list[int]]:
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items = list(range(16))
    sampler: Any = DistributedSampler(items)
    loader = DataLoader(items, sampler=sampler, batch_size=4)
    orders = []
    for epoch in range(rank.params["epochs"]):
        if tell:
            sampler.set_epoch(epoch)
        orders.append([int(item) for batch in loader for item in batch])
    return orders


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - epochs are compared
    """A rank whose epochs are all alike."""
    for rank, orders in enumerate(values):
        if len(orders) > 1 and all(order == orders[0] for order in orders):
            return f"on rank {rank} the order of all {len(orders)} epochs is the same"
    return None
