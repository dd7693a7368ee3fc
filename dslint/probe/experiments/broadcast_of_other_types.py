"""A broadcast of whole numbers into a tensor of floats.

As written, rank 0 sends int32 and rank 1 receives into float32; as fixed, both hold int32. As written the numbers that
arrive are next to 0. With floats on both sides they arrive (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="broadcast-of-other-types",
    summary="the bits of whole numbers are read as floats: other numbers arrive",
    rules=("DSL672",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"rank 1 receives \[0, 0, 0\]"),
    cases=(
        Case("whole-into-float", {"sent": "int32"}),
        Case("float-into-float", {"sent": "float32"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Room for floats."""
    return _receive(rank, "float32")


def fixed(rank: RankApi) -> Json:
    """Room for what is sent."""
    return _receive(rank, str(rank.params["sent"]))


def _receive(rank: RankApi, room: str) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    if rank.index == 0:
        numbers = torch.tensor([1, 2, 3], dtype=getattr(torch, str(rank.params["sent"])), device=rank.device)
    else:
        numbers = torch.zeros(3, dtype=getattr(torch, room), device=rank.device)
    dist.broadcast(numbers, src=0)
    return [int(number) for number in numbers]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Other numbers than those of rank 0."""
    return None if values[1] == values[0] else f"rank 1 receives {values[1]}"
