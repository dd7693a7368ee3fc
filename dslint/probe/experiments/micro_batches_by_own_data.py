"""A batch that each rank cuts into as many pieces as its own tokens need, with a DDP step for each piece.

As written, one rank has 2 pieces and the other 3; as fixed, both take the larger number.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="micro-batches-by-own-data",
    summary="the rank with a piece more waits in its backward for the other",
    rules=("DSL682",),
    expect=Expect((Kind.STALL, Kind.RAISE), r"backward|forward|all_reduce|Connection (?:reset|closed) by peer"),
    cases=(Case("budget", {}),),
)


def written(rank: RankApi) -> Json:
    """As many pieces as the rank's own tokens need."""
    return _train(rank, is_agreed=False)


def fixed(rank: RankApi) -> Json:
    """The larger number on both ranks."""
    return _train(rank, is_agreed=True)


def _train(rank: RankApi, is_agreed: bool) -> Json:
    import math

    import torch
    import torch.distributed as dist

    from dslint.probe.parts.ddp import make_ddp

    model = make_ddp(rank)
    count = torch.tensor([math.ceil(sum([3, 4, 4 * rank.index]) / 4)], device=rank.device)
    if is_agreed:
        dist.all_reduce(count, op=dist.ReduceOp.MAX)
    for _ in range(int(count)):
        model(torch.ones(2, 4, device=rank.device)).mean().backward()
    dist.barrier()
    return {"pieces": int(count)}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "budget" and subject.finding.fact("pieces") == "own" else None
