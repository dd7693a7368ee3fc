"""`new_group` that is not the same on all ranks: other members, or another number of groups.

Every rank must make every group, with the same members and in the same order, also those of which it is no member. As
written, each rank makes only a group of its own members (itself and its neighbour), or as many groups as its rank says;
as fixed, all ranks make all groups. Groups that do not overlap ({0, 1} and {2, 3}) are a matter of luck over gloo: they
use the same name in the store, and some runs get through. Two relatives that work are the
controls: a group of the rank alone, which waits for nobody, and ``use_local_synchronization=True``, with which the
members name a group by themselves.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="group-members-per-rank",
    summary="the ranks make other process groups, and wait for members that make another one",
    rules=("DSL226",),
    expect=Expect((Kind.STALL,), r"(?:new_group|all_reduce) \(distributed_c10d\.py"),
    ranks=4,
    cases=(
        Case("members", {"members": "members"}),
        Case("count", {"members": "count"}),
        Case("alone", {"members": "alone"}, verdict=Verdict.NOT_REPRODUCED),
        Case("local", {"members": "local"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Only the groups of this rank."""
    import torch.distributed as dist

    rank.init()
    members = rank.params["members"]
    if members == "count":
        for _ in range(rank.index + 1):
            dist.new_group()
        return _sum(rank, None)
    first = rank.index // 2 * 2
    mine = {"alone": [rank.index], "local": [first, first + 1]}.get(
        members, [rank.index, (rank.index + 1) % rank.world]
    )
    group = dist.new_group(mine, use_local_synchronization=members == "local")
    rank.mark("group made")
    return _sum(rank, group)


def fixed(rank: RankApi) -> Json:
    """All groups on all ranks."""
    import torch.distributed as dist

    rank.init()
    members, mine = rank.params["members"], None
    if members == "count":
        for _ in range(rank.world):
            dist.new_group()
        return _sum(rank, None)
    for first in range(0, rank.world, 2 if members == "local" else 1):
        all_of_it = {"alone": [first], "local": [first, first + 1]}.get(members, [first, (first + 1) % rank.world])
        group = dist.new_group(all_of_it)
        if rank.index in all_of_it:
            mine = group
    rank.mark("group made")
    return _sum(rank, mine if members in ("alone", "local") else None)


def _sum(rank: RankApi, group: object) -> float:
    import torch
    import torch.distributed as dist

    total = torch.full((2,), float(rank.index), device=rank.device)
    dist.all_reduce(total, group=group)
    found: float = total[0].item()
    return found


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """A list of members that depends on the rank, or a number of groups that does."""
    return {} if case.name == subject.finding.fact("members") else None
