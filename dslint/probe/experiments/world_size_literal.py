"""A process group that is made for another number of ranks than the launcher starts.

As written every rank passes a literal as the world size; as fixed, what the launcher says. Nobody gets past
`init_process_group`.
"""

from __future__ import annotations

from datetime import timedelta

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="world-size-literal",
    summary="the ranks wait for others that nobody starts",
    rules=("DSL415",),
    flavour="torch",
    expect=Expect((Kind.STALL,), r"distributed_c10d"),
    cases=(
        Case("one-more", {"literal": 3}),
        Case("as-many", {"literal": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The literal."""
    return _make(rank, int(rank.params["literal"]))


def fixed(rank: RankApi) -> Json:
    """What the launcher says."""
    return _make(rank, rank.world)


def _make(rank: RankApi, size: int) -> Json:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=rank.store(), rank=rank.index, world_size=size, timeout=timedelta(seconds=60))
    found = dist.get_world_size()
    dist.destroy_process_group()
    return found


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """One rank more than there are, as in the finding; fewer is another failure."""
    literal, world = subject.finding.fact("literal"), subject.finding.fact("world")
    more = isinstance(literal, int) and isinstance(world, int) and literal > world
    return {} if more and case.verdict is Verdict.CONFIRMED else None
