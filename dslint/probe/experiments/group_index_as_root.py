"""The root of a collective on a subgroup.

Four ranks in two groups. As written, each group broadcasts from its rank within the group, or from rank 0 of the job;
as fixed, that index becomes a rank of the job. A group of all ranks is the control.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="group-index-as-root",
    summary="a group refuses a root that is a rank of another group",
    flavour="torch",
    ranks=4,
    rules=("DSL292",),
    expect=Expect((Kind.RAISE,), r"not part of group|not a member|is not part"),
    cases=(
        Case("index", {"size": 2, "index": 1}),
        Case("fixed-rank", {"size": 2, "index": 0}),
        Case("whole-job", {"size": 4, "index": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The index within the group."""
    return _broadcast(rank, is_global=False)


def fixed(rank: RankApi) -> Json:
    """The rank of the job."""
    return _broadcast(rank, is_global=True)


def _broadcast(rank: RankApi, is_global: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    size, index = int(rank.params["size"]), int(rank.params["index"])
    mine = None
    for start in range(0, rank.world, size):
        group = dist.new_group(list(range(start, start + size)))
        mine = group if start <= rank.index < start + size else mine
    assert mine is not None
    found = torch.tensor([float(rank.index)])
    dist.broadcast(found, src=dist.get_global_rank(mine, index) if is_global else index, group=mine)
    rank.mark("broadcast")
    return {"found": found.item()}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether an index is passed, or one rank for all groups."""
    return {} if case.name == ("index" if subject.finding.fact("index") else "fixed-rank") else None
