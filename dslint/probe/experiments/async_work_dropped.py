"""An asynchronous `all_reduce` whose work nobody waits for, and a rank that comes late.

As written, the first rank reads its tensor at once and has its own numbers; as fixed, it waits for the work and has
the sum. A call that waits by itself changes nothing (the control).
"""

from __future__ import annotations

import time

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="async-work-dropped",
    summary="a tensor is read before the other rank has sent its part",
    rules=("DSL661",),
    expect=Expect((Kind.WRONG,), r"not the sum"),
    cases=(
        Case("all_reduce", {"asynchronous": True}),
        Case("synchronous", {"asynchronous": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_LATE = 1.0


def written(rank: RankApi) -> Json:
    """Nobody waits."""
    return _read(rank, waits=False)


def fixed(rank: RankApi) -> Json:
    """The work is waited for."""
    return _read(rank, waits=True)


def _read(rank: RankApi, waits: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    tensor = torch.full((4,), float(rank.index + 1), device=rank.device)
    dist.barrier()
    if rank.index:
        time.sleep(_LATE)
    work = dist.all_reduce(tensor, async_op=bool(rank.params["asynchronous"]))
    if work is not None and waits:
        work.wait()
    found = tensor.tolist()
    if work is not None:
        work.wait()  # so that the other rank gets its part
    return found


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the sum is known
    """A rank that has read something else."""
    total = float(sum(range(1, len(values) + 1)))
    return None if all(value == [total] * 4 for value in values) else f"a rank has read {values[0]}, not the sum"
