"""`engine.no_sync()` with partitioned gradients.

As written, the script accumulates inside `no_sync()` as it would with DDP; as fixed, it leaves that to
`gradient_accumulation_steps`. ZeRO stages 2 and 3 need the reduction to partition the gradients and refuse; stages 0
and 1 allow it.
"""

from __future__ import annotations

from contextlib import nullcontext

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="no-sync-with-zero",
    summary="no_sync of an engine whose gradients are partitioned",
    rules=("DSL246",),
    flavour="deepspeed",
    expect=Expect((Kind.RAISE,), r"AssertionError.*no_sync"),
    cases=(
        Case("z2", {"stage": 2}),
        Case("z3", {"stage": 3}),
        Case("z1", {"stage": 1}, verdict=Verdict.NOT_REPRODUCED),
        Case("z0", {"stage": 0}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The first backward runs inside ``no_sync``."""
    return _train(rank, waits=True)


def fixed(rank: RankApi) -> Json:
    """Every backward is the engine's affair."""
    return _train(rank, waits=False)


def _train(rank: RankApi, waits: bool) -> Json:
    from dslint.probe.parts.zero import batch, config, engine, loss_of

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    with trained.no_sync() if waits else nullcontext():
        trained.backward(loss_of(trained(batch(rank, 0))))
    rank.mark("backward")
    return True


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The stage of the run."""
    return {} if subject.finding.fact("stage") == case.params["stage"] else None
