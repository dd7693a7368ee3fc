"""A dictionary is reduced whose keys follow from what each rank has seen.

As written, rank 0 has seen a kind of item that rank 1 has not, and its dictionary has a key more: accelerate reduces
key by key, and rank 0 waits for a call that rank 1 never makes. As fixed, both have every key, with 0 for what they
have not seen. With one other key each (case `other-keys`) nothing waits, and both get a sum of different things.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator

EXPERIMENT = Experiment(
    name="collective-for-each-own-key",
    summary="a dictionary with a key more on one rank is reduced key by key: the rank waits for ever",
    rules=("DSL660",),
    flavour="transformers",
    expect=Expect((Kind.STALL, Kind.RAISE, Kind.WRONG)),
    cases=(
        Case("a-key-more", {"seen": [["box", "mask"], ["box"]]}),
        Case("other-keys", {"seen": [["box"], ["mask"]]}),
        Case("same-keys", {"seen": [["box"], ["box"]]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_KINDS = ("box", "mask")


def written(rank: RankApi) -> Json:
    """The keys that this rank has seen."""
    return _reduced(rank, _seen(rank))


def fixed(rank: RankApi) -> Json:
    """Every key, with 0 for what this rank has not seen."""
    seen = _seen(rank)
    return _reduced(rank, {name: seen.get(name, 0.0) for name in _KINDS})


def _seen(rank: RankApi) -> dict[str, float]:
    names = rank.params["seen"][min(rank.index, 1)]
    return {name: 1.0 if name == "box" else 10.0 for name in names}


def _reduced(rank: RankApi, values: dict[str, float]) -> Json:
    import torch

    accelerator = make_accelerator(rank)
    total = accelerator.reduce({k: torch.tensor(v, device=accelerator.device) for k, v in values.items()}, "sum")
    accelerator.wait_for_everyone()
    return {name: float(value) for name, value in total.items()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A sum that is another one when all ranks have every key."""
    for rank, value in enumerate(values):
        for name, total in value.items():
            if total != reference[rank][name]:
                return f"rank {rank} gets {total:g} for `{name}`, which is {reference[rank][name]:g}"
    return None
