"""A `DistributedSampler` that shuffles, in an epoch loop without `set_epoch`.

As written, the loop runs two epochs; as fixed, `sampler.set_epoch(epoch)` stands before each. The sampler seeds its
shuffle with the number of the epoch, and without the call that number is 0 for ever: every epoch has the same order.
The loader that `deepspeed.initialize(training_data=...)` returns has such a sampler too, and never tells it the epoch.
A sampler that does not shuffle has one order anyway: as fixed it has the same.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="sampler-epoch-missing",
    summary="every epoch has the same order",
    rules=("DSL255",),
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"the order of all \d+ epochs is the same"),
    cases=(
        Case("two-epochs", {"epochs": 2, "loader": "sampler", "shuffle": True}),
        Case("deepspeed-loader", {"epochs": 2, "loader": "deepspeed", "shuffle": True}),
        Case("one-epoch", {"epochs": 1, "loader": "sampler", "shuffle": True}, verdict=Verdict.NOT_REPRODUCED),
        Case("no-shuffle", {"epochs": 2, "loader": "sampler", "shuffle": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """No `set_epoch`."""
    return _orders(rank, tell=False)


def fixed(rank: RankApi) -> Json:
    """`set_epoch` before each epoch."""
    return _orders(rank, tell=True)


def _orders(rank: RankApi, tell: bool) -> list[list[int]]:
    rank.init()
    loader, sampler = _deepspeed_loader(rank) if rank.params["loader"] == "deepspeed" else _loader(rank)
    orders = []
    for epoch in range(rank.params["epochs"]):
        if tell:
            sampler.set_epoch(epoch)
        orders.append([int(item) for batch in loader for item in batch])
    return orders


def _loader(rank: RankApi) -> tuple[Any, Any]:
    from torch.utils.data import DataLoader, DistributedSampler

    items: Any = list(range(16))
    sampler: Any = DistributedSampler(items, shuffle=rank.params["shuffle"])
    return DataLoader(items, sampler=sampler, batch_size=4), sampler


def _deepspeed_loader(rank: RankApi) -> tuple[Any, Any]:
    import deepspeed

    from dslint.probe.parts.zero import compile_nothing, config, model

    compile_nothing()
    loader = deepspeed.initialize(model=model(), config=config(0), training_data=list(range(16)))[2]
    rank.mark("engine ready")
    return loader, loader.data_sampler


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A rank whose epochs are all alike, where they differ once they are told apart."""
    for rank, (orders, others) in enumerate(zip(values, reference, strict=True)):
        alike = len(orders) > 1 and all(order == orders[0] for order in orders)
        if alike and any(order != others[0] for order in others):
            return f"on rank {rank} the order of all {len(orders)} epochs is the same"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The loader that the finding is about."""
    wanted = "deepspeed-loader" if subject.finding.fact("loader") == "deepspeed" else "two-epochs"
    return {} if case.name == wanted else None
