"""`no_sync` on all micro batches of a step but the first, or but the last.

As written, DDP exchanges the gradients of the first micro batch of a group; as fixed, those of the last, and with them
what the others have accumulated. As written each rank steps with gradients of its own, and the weights of the ranks
part. Groups of one micro batch never enter `no_sync` (the control).
"""

from __future__ import annotations

from contextlib import nullcontext

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="no-sync-at-step",
    summary="each rank steps with gradients of its own",
    flavour="torch",
    rules=("DSL269",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("four", {"gas": 4}),
        Case("one", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The first micro batch is exchanged."""
    return _train(rank, exchanged=0)


def fixed(rank: RankApi) -> Json:
    """The last micro batch is exchanged."""
    return _train(rank, exchanged=rank.params["gas"] - 1)


def _train(rank: RankApi, exchanged: int) -> Json:
    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer, weights

    gas = rank.params["gas"]
    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    for number in range(2 * gas):
        with nullcontext() if number % gas == exchanged else model.no_sync():
            ((model(inputs(rank, number)) - 1).square().mean() / gas).backward()
        if (number + 1) % gas == 0:
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro batch {number}")
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Weights that are not those of rank 0."""
    return first_apart(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The number of micro batches of the finding."""
    gas = subject.finding.fact("gas")
    if case.name != "four":
        return None
    return {"gas": gas} if isinstance(gas, int) and 1 < gas <= 16 else {}
