"""A sampler that draws as many items as there are, in each of two processes.

As written, `WeightedRandomSampler` draws in every process; as fixed, the draw of one seed is dealt out.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="every-rank-draws-whole-epoch",
    summary="an epoch sees the items as many times as there are processes",
    rules=("DSL676",),
    expect=Expect((Kind.WRONG,), r"8 items on this rank instead of 4"),
    cases=(Case("weighted", {}),),
)


def written(rank: RankApi) -> Json:
    """Each process draws all."""
    return _train(rank, is_divided=False)


def fixed(rank: RankApi) -> Json:
    """Each process takes its share of one draw."""
    return _train(rank, is_divided=True)


def _train(rank: RankApi, is_divided: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

    from dslint.probe.parts.ddp import make_ddp

    model = make_ddp(rank)
    draw: Any = WeightedRandomSampler([1.0] * 8, num_samples=8, generator=torch.Generator().manual_seed(1))
    sampler = list(draw)[rank.index :: rank.world] if is_divided else draw
    loader: Any = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2, sampler=sampler)
    items = 0
    for (rows,) in loader:
        model(rows.to(rank.device)).mean().backward()
        items += len(rows)
    return {"items": items}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How many items a rank trains on."""
    here, expected = values[0]["items"], reference[0]["items"]
    return None if here == expected else f"{here} items on this rank instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "weighted" and subject.finding.fact("draws") == "all" else None
