"""A split of a data set that every process draws for itself.

As written, nothing seeds `random_split`, or each rank seeds with its own number; as fixed, it gets a generator with one
seed. One seed for all ranks before the draw is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="parts-drawn-per-rank",
    summary="what one rank holds out, another trains on",
    flavour="torch",
    rules=("DSL604",),
    expect=Expect((Kind.WRONG,), r"\d+ of 64 held-out items are trained on by another rank"),
    cases=(
        Case("no-seed", {"seed": "none"}),
        Case("seed-of-the-rank", {"seed": "rank"}),
        Case("one-seed", {"seed": "same"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """No generator."""
    import torch

    rank.init()
    if rank.params["seed"] == "none":
        torch.seed()  # as a process begins that nobody has seeded
    else:
        torch.manual_seed(7 + (rank.index if rank.params["seed"] == "rank" else 0))
    return _split(None)


def fixed(rank: RankApi) -> Json:
    """A generator with one seed."""
    import torch

    rank.init()
    return _split(torch.Generator().manual_seed(42))


def _split(generator: Any) -> list[int]:
    from torch.utils.data import random_split

    items: Any = list(range(256))
    options = {"generator": generator} if generator is not None else {}
    _, held_out = random_split(items, [192, 64], **options)
    return sorted(int(at) for at in held_out.indices)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Items that rank 0 holds out, and rank 1 does not."""
    first, second = ({*map(str, part)} if isinstance(part, list) else set() for part in values)
    others = len(first - second)
    held = len(reference[0]) if isinstance(reference[0], list) else 0
    return f"{others} of {held} held-out items are trained on by another rank" if others else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """A draw that nothing has seeded."""
    return {} if case.name == "no-seed" and subject.finding.fact("library") else None
