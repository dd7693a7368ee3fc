"""Rows of all ranks are gathered into a list that holds one tensor again and again.

As written, the list is `[tensor] * world_size`; as fixed, it has a tensor for each rank. Each rank sends its number
plus one. As written, all entries hold what one rank has sent.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="gather-list-of-one-tensor",
    summary="a gather into one tensor under every index: all entries hold the rows of one rank",
    rules=("DSL657",),
    expect=Expect((Kind.WRONG,), r"are lost"),
    cases=(Case("all_gather", {}),),
)


def written(rank: RankApi) -> Json:
    """One tensor under every index."""
    import torch

    return _gathered(rank, [torch.zeros(1, device=rank.device)] * rank.world)


def fixed(rank: RankApi) -> Json:
    """A tensor for each rank."""
    import torch

    return _gathered(rank, [torch.zeros(1, device=rank.device) for _ in range(rank.world)])


def _gathered(rank: RankApi, parts: list[Any]) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    dist.all_gather(parts, torch.full((1,), float(rank.index + 1), device=rank.device))
    return [part.item() for part in parts]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Numbers that the ranks have sent and nobody has got."""
    for rank, (value, wanted) in enumerate(zip(values, reference, strict=True)):
        lost = sorted(set(wanted) - set(value))
        if lost:
            return f"on rank {rank} the rows {', '.join(f'{number:g}' for number in lost)} are lost"
    return None
