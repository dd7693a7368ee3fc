"""A data set that draws its items, in workers whose seeds come from a generator that both ranks seed alike.

As written, the generator of the loader gets the seed of the case; as fixed, the rank is in it. The ranks have different
indices, and nobody looks at them.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="every-rank-draws-same-items",
    summary="all ranks train on the same drawn items",
    rules=("DSL780",),
    expect=Expect((Kind.WRONG,), r"rank 1 trained on the same items as rank 0"),
    cases=(
        Case("one-seed", {"own": False}),
        Case("seed-of-rank", {"own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The seed of the case."""
    return _train(rank, own=rank.params["own"])


def fixed(rank: RankApi) -> Json:
    """A seed for each rank."""
    return _train(rank, own=True)


def _train(rank: RankApi, own: bool) -> Json:
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    from dslint.probe.parts.ddp import make_ddp, make_optimizer

    class Drawn(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, _index: int) -> torch.Tensor:
            return torch.from_numpy(np.random.normal(size=4).astype(np.float32))

    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    data = Drawn()
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(data)
    generator = torch.Generator().manual_seed(3 + (rank.index if own else 0))
    seen: list[float] = []
    for batch in DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, generator=generator):
        seen += [float(value) for value in batch.flatten()]
        optimizer.zero_grad()
        model(batch.to(rank.device)).mean().backward()
        optimizer.step()
    return {"seen": seen}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """The same items on two ranks."""
    for index, found in enumerate(values[1:], 1):
        if found["seen"] == values[0]["seen"]:
            return f"rank {index} trained on the same items as rank 0"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of one seed, for every finding."""
    return {} if case.name == "one-seed" and subject.finding.fact("draws") == "items" else None
