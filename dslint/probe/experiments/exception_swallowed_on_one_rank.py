"""An exception on one rank is caught around a collective, and the loop goes on.

As written, `try: ... all_reduce(total) ... except ValueError: continue` lets the rank that could not read a record pass
over the sum of that record. From then on its calls pair up with the wrong calls of the others. As fixed, the rank adds
zero, and every rank makes every call. When one rank skips, the others are a call short at the end; when each skips one,
the numbers of calls agree, nothing hangs, and the sums are wrong without a word. When all ranks skip the same record
(the control), they pass over the same call.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="exception-swallowed-on-one-rank",
    summary="a caught exception skips a collective on one rank, and later calls pair up wrongly",
    rules=("DSL205",),
    expect=Expect((Kind.STALL,), r"all_reduce \(distributed_c10d\.py"),
    cases=(
        Case("one-rank", {"broken": [[], [1]]}),
        Case("each-rank-another", {"broken": [[3], [1]]}, Expect((Kind.WRONG,), r"sum of record \d is \d+, not")),
        Case("every-rank-the-same", {"broken": [[1, 3], [1, 3]]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_RECORDS = 5


def written(rank: RankApi) -> Json:
    """The call stands behind what raises."""
    import torch
    import torch.distributed as dist

    rank.init()
    sums: dict[str, float] = {}
    for record in range(_RECORDS):
        try:
            total = torch.tensor([_read(rank, record)], device=rank.device)
            dist.all_reduce(total)
            sums[str(record)] = total.item()
        except ValueError:
            continue
        rank.mark(f"record {record}")
    return sums


def fixed(rank: RankApi) -> Json:
    """Only the reading is tried; a record that cannot be read counts as zero."""
    import torch
    import torch.distributed as dist

    rank.init()
    sums: dict[str, float] = {}
    for record in range(_RECORDS):
        try:
            value = _read(rank, record)
        except ValueError:
            value = 0.0
        total = torch.tensor([value], device=rank.device)
        dist.all_reduce(total)
        sums[str(record)] = total.item()
    return sums


def _read(rank: RankApi, record: int) -> float:
    broken = rank.params["broken"]
    if rank.index < len(broken) and record in broken[rank.index]:
        raise ValueError(f"record {record} cannot be read")
    return 10.0**record


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A sum that is not that of its record."""
    for rank, (found, expected) in enumerate(zip(values, reference, strict=True)):
        for record, value in found.items():
            if value != expected[record]:
                return f"on rank {rank} the sum of record {record} is {value:g}, not {expected[record]:g}"
    return None
