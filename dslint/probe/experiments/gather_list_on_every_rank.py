"""`dist.gather(tensor, gather_list=parts, dst=0)` with a list on every rank.

As written, every rank passes the list; as fixed, only the destination does and the others pass `None`. The other ranks
raise before they send anything, and rank 0 waits for them. `scatter_object_list` ignores the lists of the others (the
control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="gather-list-on-every-rank",
    summary="`gather` raises on every rank but the destination, which then waits for them",
    rules=("DSL228",),
    expect=Expect((Kind.RAISE,), r"ValueError: Argument .*(?:gather_list|scatter_list).* must NOT be specified"),
    cases=(
        Case("gather", {"call": "gather"}),
        Case("gather_object", {"call": "gather_object"}),
        Case("scatter", {"call": "scatter"}),
        Case("scatter_object_list", {"call": "scatter_object_list"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """A list everywhere."""
    return _call(rank, everywhere=True)


def fixed(rank: RankApi) -> Json:
    """A list on rank 0 only."""
    return _call(rank, everywhere=False)


def _call(rank: RankApi, everywhere: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    tensor = torch.full((2,), float(rank.index), device=rank.device)
    parts = [torch.zeros(2, device=rank.device) for _ in range(rank.world)]
    given = parts if everywhere or rank.index == 0 else None
    if rank.params["call"] == "gather":
        dist.gather(tensor, given, dst=0)
    elif rank.params["call"] == "gather_object":
        dist.gather_object(rank.index, None if given is None else [None] * rank.world, dst=0)
    elif rank.params["call"] == "scatter_object_list":
        dist.scatter_object_list([None], None if given is None else [1] * rank.world, src=0)
    else:
        dist.scatter(tensor, given, src=0)
    return tensor.tolist()


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call of the finding."""
    return {} if case.name == subject.finding.fact("call") else None
