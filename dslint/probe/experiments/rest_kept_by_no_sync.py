"""Five micro batches in groups of four, and a step on the fifth.

As written, `no_sync` is left on the fourth alone: the optimizer steps on the fifth with gradients that DDP has not
exchanged, and the weights of the ranks part. As fixed, it is left on the fifth, too. Groups of one micro batch never
enter `no_sync` (the control).
"""

from __future__ import annotations

from contextlib import nullcontext

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="rest-kept-by-no-sync",
    summary="each rank steps on the rest of an epoch with gradients of its own",
    flavour="torch",
    rules=("DSL639",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("four", {"gas": 4}),
        Case("one", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The gradients of the rest stay on their rank."""
    return _train(rank, is_last_exchanged=False)


def fixed(rank: RankApi) -> Json:
    """They are exchanged."""
    return _train(rank, is_last_exchanged=True)


def _train(rank: RankApi, is_last_exchanged: bool) -> Json:
    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer, weights

    gas = rank.params["gas"]
    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    batches = gas + 1
    for number in range(batches):
        is_full, is_last = (number + 1) % gas == 0, number + 1 == batches
        with nullcontext() if is_full or (is_last and is_last_exchanged) else model.no_sync():
            (model(inputs(rank, number)) - 1).square().mean().backward()
        if is_full or is_last:
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro batch {number}")
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Weights that are not those of rank 0."""
    return first_apart(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - the group is the case's own
    """The case of a group of four."""
    return {} if case.name == "four" else None
