"""A tensor is gathered whose first dimension differs between the ranks.

As written, rank 0 has 2 rows and rank 1 has 3 (what a boolean mask, generated text or a last short batch leave); as
fixed, the rows are padded to the longest first, or gathered as objects. Each rank makes room for tensors of its own
shape, so one aborts over gloo, and the other may return numbers that nobody sent. NCCL does not check sizes: it waits,
or it writes past the room. An `all_reduce` of unequal lengths is the same mistake: the rank with fewer numbers may
return as if nothing were wrong.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator

_ALONE = Expect(
    (Kind.RAISE, Kind.SIGNAL, Kind.STALL), r"Received data size doesn't match|all_reduce \(distributed_c10d"
)

EXPERIMENT = Experiment(
    name="gather-of-unequal-shapes",
    summary="tensors of different length are gathered: a rank aborts, or returns numbers that nobody sent",
    rules=("DSL227", "DSL614"),
    flavour="transformers",
    expect=Expect(
        (Kind.RAISE, Kind.SIGNAL, Kind.STALL, Kind.WRONG), r"Received data size doesn't match|numbers that nobody sent"
    ),
    cases=(
        Case("accelerate", {"call": "accelerate", "rows": [2, 3]}),
        Case("all_gather", {"call": "all_gather", "rows": [2, 3]}),
        Case("all_reduce", {"call": "all_reduce", "rows": [3, 4]}, _ALONE, rules=()),
        Case("equal", {"call": "accelerate", "rows": [3, 3]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The rows as they are."""
    accelerator = make_accelerator(rank)
    return _gather(rank, accelerator, _rows(rank))


def fixed(rank: RankApi) -> Json:
    """The rows padded to the longest."""
    accelerator = make_accelerator(rank)
    return _gather(rank, accelerator, accelerator.pad_across_processes(_rows(rank), pad_index=0))


def _rows(rank: RankApi) -> Any:
    import torch

    rows = rank.params["rows"]
    return torch.full((rows[min(rank.index, len(rows) - 1)], 2), float(rank.index + 1), device=rank.device)


def _gather(rank: RankApi, accelerator: Any, rows: Any) -> Json:
    import torch
    import torch.distributed as dist

    if rank.params["call"] == "accelerate":
        return accelerator.gather(rows).flatten().tolist()
    if rank.params["call"] == "all_gather":
        parts = [torch.empty_like(rows) for _ in range(rank.world)]
        dist.all_gather(parts, rows)
        return torch.cat(parts).flatten().tolist()
    dist.all_reduce(rows)
    return rows.flatten().tolist()


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Numbers that are not among those of the fixed arm."""
    known = {number for value in reference for number in value}
    for rank, value in enumerate(values):
        strange = [number for number in value if number not in known]
        if strange:
            return f"rank {rank} gets numbers that nobody sent, such as {strange[0]:g}"
        if len(value) != len(values[0]):
            return f"rank 0 gets {len(values[0])} numbers, rank {rank} gets {len(value)}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call of the finding; how many rows each rank has only its data says."""
    if subject.finding.fact("kind") == "host":
        return None
    wanted = "all_gather" if str(subject.finding.fact("call")).startswith("all_gather") else "accelerate"
    return {} if case.name == wanted else None
