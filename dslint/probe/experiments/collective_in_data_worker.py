"""A collective inside `__getitem__` of a dataset, in `collate_fn` or `worker_init_fn`.

As written, each item (or batch, or worker) makes a collective; as fixed, the data code talks to nobody. With worker
processes the collective runs in a fork of the rank, which shares the sockets and has none of the threads of the process
group: it never completes. Without workers it runs in the rank itself, and waits as soon as one rank has more items than
another. Equal numbers of items without workers are the control.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="collective-in-data-worker",
    summary="a collective of the data code waits in a worker process that has no process group",
    rules=("DSL230",),
    expect=Expect((Kind.STALL, Kind.RAISE), r"torch/utils/data/dataloader|DataLoader worker|dataloader\.py"),
    cases=(
        Case("getitem-with-worker", {"place": "getitem", "workers": 1, "more": 0}),
        Case("collate-with-worker", {"place": "collate", "workers": 1, "more": 0}),
        Case("worker-init", {"place": "init", "workers": 1, "more": 0}),
        Case(
            "getitem-uneven",
            {"place": "getitem", "workers": 0, "more": 1},
            Expect((Kind.STALL, Kind.RAISE), r"all_reduce|Connection (?:reset|closed) by peer"),
        ),
        Case("getitem-even", {"place": "getitem", "workers": 0, "more": 0}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The data code makes a collective."""
    return _load(rank, rank.params["place"])


def fixed(rank: RankApi) -> Json:
    """The data code talks to nobody."""
    return _load(rank, "")


def _load(rank: RankApi, place: str) -> int:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset, default_collate

    def talk(here: str) -> None:
        if place == here:
            dist.all_reduce(torch.ones(1, device=rank.device))

    class Items(Dataset[int]):
        def __len__(self) -> int:
            return 4 + (rank.params["more"] if rank.index == 0 else 0)

        def __getitem__(self, index: int) -> int:
            talk("getitem")
            return index

    def collate(items: list[int]) -> object:
        talk("collate")
        return default_collate(items)

    def begin(_: int) -> None:
        talk("init")

    rank.init()
    workers = rank.params["workers"]
    loader: DataLoader[int] = DataLoader(Items(), num_workers=workers, collate_fn=collate, worker_init_fn=begin)
    seen = 0
    for _ in loader:
        seen += 1
        rank.mark(f"batch {seen}")
    dist.barrier()
    return seen


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The place of the collective, and whether the loader is known to have workers."""
    place, workers = subject.finding.fact("place"), subject.finding.fact("workers")
    wanted = {"getitem": "getitem-with-worker", "collate": "collate-with-worker", "init": "worker-init"}
    if case.name != (wanted.get(str(place)) if workers or place == "init" else "getitem-uneven"):
        return None
    return {"workers": workers} if isinstance(workers, int) and workers > 0 else {}
