"""An iterable data set that divides its items among the workers of the loader, and not among the ranks.

As written, every rank reads the same items in the same order and computes the gradient of the same batch; as fixed,
each reads its own. A data set that is divided by the rank as well is the control.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="training-items-same",
    summary="all ranks train on the same items",
    rules=("DSL281",),
    expect=Expect((Kind.WRONG,), r"rank 1 trained on the same items as rank 0"),
    cases=(
        Case("by-worker", {"by_rank": False}),
        Case("by-rank", {"by_rank": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Divided as the case says."""
    return _train(rank, by_rank=rank.params["by_rank"])


def fixed(rank: RankApi) -> Json:
    """Divided by the rank."""
    return _train(rank, by_rank=True)


def _train(rank: RankApi, by_rank: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    from dslint.probe.parts.ddp import make_ddp, make_optimizer

    class Items(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            worker = get_worker_info()
            at, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
            if by_rank:
                at, count = rank.index * count + at, rank.world * count
            return iter(range(16)[at::count])

    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    seen: list[int] = []
    for number, batch in enumerate(DataLoader(Items(), batch_size=4)):
        seen += [int(item) for item in batch]
        optimizer.zero_grad()
        model(torch.ones(4, 4, device=rank.device) * batch.float().mean()).mean().backward()
        optimizer.step()
        rank.mark(f"step {number}")
    return {"seen": seen}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """The same items on two ranks."""
    for index, found in enumerate(values[1:], 1):
        if found["seen"] == values[0]["seen"]:
            return f"rank {index} trained on the same items as rank 0"
    return None
