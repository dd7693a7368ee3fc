"""Groups of four micro batches, and `require_backward_grad_sync` set by hand.

As written, it is set between the forward and the backward pass: DDP has decided by then, so that the first micro batch
of the next group is exchanged in the place of the last one of this group, and the weights of the ranks part. As fixed,
it is set before the forward pass. Groups of one micro batch are always exchanged (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="sync-flag-after-forward",
    summary="each rank steps with gradients of its own, since the flag comes after the forward pass",
    flavour="torch",
    rules=("DSL689",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("four", {"gas": 4}),
        Case("one", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The flag comes too late."""
    return _train(rank, is_early=False)


def fixed(rank: RankApi) -> Json:
    """The flag is there when the forward pass asks for it."""
    return _train(rank, is_early=True)


def _train(rank: RankApi, is_early: bool) -> Json:
    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer, weights

    gas = rank.params["gas"]
    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    for number in range(2 * gas):
        is_last = (number + 1) % gas == 0
        if is_early:
            model.require_backward_grad_sync = is_last
        loss = (model(inputs(rank, number)) - 1).square().mean()
        model.require_backward_grad_sync = is_last
        loss.backward()
        if is_last:
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
