"""Data parallel training in which one rank has a batch more than the others.

As written, each rank runs over its share of the batches, and one share is longer; as fixed, the loop stands in
`with model.join():`, which answers the collectives of the longer share for the ranks that are done. The backward of a
`DistributedDataParallel` model averages gradients over all ranks, so the surplus backward waits for ranks that have
left. Shares of equal length are the control.
"""

from __future__ import annotations

from contextlib import nullcontext

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step
from dslint.probe.parts.rounds import scaled

EXPERIMENT = Experiment(
    name="uneven-ddp-batches",
    summary="the backward of a DDP model waits for ranks that have fewer batches",
    rules=("DSL207",),
    expect=Expect((Kind.STALL,), r"_engine_run_backward"),
    cases=(
        Case("one-more", {"items": 7, "world": 2}),
        Case("even", {"items": 6, "world": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The plain loop."""
    return _train(rank, joined=False)


def fixed(rank: RankApi) -> Json:
    """The loop inside `join()`."""
    return _train(rank, joined=True)


def _train(rank: RankApi, joined: bool) -> int:
    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    share = range(rank.index, scaled(rank, rank.params["items"]), rank.world)
    with model.join() if joined else nullcontext():
        for number in share:
            train_step(rank, model, optimizer, number)
    return len(share)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The numbers, when the finding is about DDP and knows both."""
    fact = subject.finding.fact
    if fact("collective") != "ddp" or case.name != "one-more":
        return None
    items, world = fact("items"), fact("world")
    known = isinstance(items, int) and isinstance(world, int) and world > 1 and items % world != 0
    return {"items": items, "world": world} if known else dict(case.params)
