"""A copy of a model that is made before DDP sends the weights of rank 0.

As written, each rank draws a model, copies it and wraps it: the copies differ. As fixed, the copy is made after the
wrapper. One seed for all ranks makes the copies equal as well (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="copy-before-replicas-equal",
    summary="copies that are made before DDP is differ between the ranks",
    flavour="torch",
    rules=("DSL757",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("own-weights", {"own": True}),
        Case("same-seed", {"own": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The copy is made before the wrapper."""
    return _train(rank, is_late=False)


def fixed(rank: RankApi) -> Json:
    """The copy is made after it."""
    return _train(rank, is_late=True)


def _train(rank: RankApi, is_late: bool) -> Json:
    import copy

    import torch
    from torch.nn.parallel import DistributedDataParallel

    from dslint.probe.parts.ddp import inputs, make_optimizer, weights

    rank.init()
    torch.manual_seed(rank.index if rank.params["own"] else 0)
    net = torch.nn.Linear(4, 1).to(rank.device)
    teacher = None if is_late else copy.deepcopy(net)
    model = DistributedDataParallel(net)
    teacher = copy.deepcopy(net) if teacher is None else teacher
    optimizer = make_optimizer(model)
    for number in range(3):
        batch = inputs(rank, number)
        optimizer.zero_grad()
        (model(batch) - teacher(batch).detach() - 1).square().mean().backward()
        optimizer.step()
        rank.mark(f"step {number}")
    return weights(teacher)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Weights that are not those of rank 0."""
    return first_apart(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of weights that each rank draws."""
    return {} if case.name == "own-weights" else None
