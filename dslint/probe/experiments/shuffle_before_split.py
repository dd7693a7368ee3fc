"""A list is shuffled and then cut into one part a rank, and the ranks shuffle in different orders.

As written, the seed holds the rank (or there is none, so that each process draws its own); as fixed, every rank
shuffles with the same seed. Parts of different permutations overlap: some items are seen by two ranks, others by none.
A rank in the seed after the cut, for augmentation, is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="shuffle-before-split",
    summary="the parts of the ranks overlap, and some items are in none",
    rules=("DSL257",),
    expect=Expect((Kind.WRONG,), r"\d+ of \d+ items are in no part"),
    cases=(
        Case("random", {"library": "random", "seed": "rank"}),
        Case("numpy", {"library": "numpy", "seed": "rank"}),
        Case("torch", {"library": "torch", "seed": "rank"}),
        Case("no-seed", {"library": "random", "seed": "none"}),
        Case("no-seed-numpy", {"library": "numpy", "seed": "none"}),
        Case("no-seed-torch", {"library": "torch", "seed": "none"}),
        Case("seeded-after", {"library": "random", "seed": "after"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """As the case says."""
    seed = {"rank": 100 + rank.index, "none": None, "after": 100}[rank.params["seed"]]
    return _part(rank, seed)


def fixed(rank: RankApi) -> Json:
    """The same seed everywhere."""
    return _part(rank, 100)


def _part(rank: RankApi, seed: int | None) -> list[int]:
    import random

    rank.init()
    items = _shuffled(rank.params["library"], seed, 24)
    part = items[rank.index :: rank.world]
    random.seed(rank.index)
    return part


def _shuffled(library: str, seed: int | None, count: int) -> list[int]:
    import random

    import torch

    if library == "torch":
        if seed is None:
            torch.seed()  # as a process begins that nobody has seeded
        else:
            torch.manual_seed(seed)
        return [int(i) for i in torch.randperm(count)]
    if library == "numpy":
        import numpy

        numpy.random.seed(seed)
        return [int(i) for i in numpy.random.permutation(count)]
    items = list(range(count))
    random.seed(seed)
    random.shuffle(items)
    return items


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Items that no rank has, although each rank has as many as it should."""
    wanted: set[Any] = {item for part in reference for item in part}
    lost = wanted - {item for part in values for item in part}
    return f"{len(lost)} of {len(wanted)} items are in no part, as many in two" if lost else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The library of the shuffle, and whether there is a seed."""
    fact = subject.finding.fact
    library = str(fact("library"))
    wanted = library if fact("seeded") else "no-seed" if library == "random" else f"no-seed-{library}"
    return {} if case.name == wanted else None
