"""A random mask that each rank draws and multiplies into the weights of a DDP model.

As written, the seed of each rank holds its number: the masks differ, and with them the weights from then on. As fixed,
the mask comes from a generator that all ranks seed alike. One seed for all needs no such generator (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="weights-drawn-per-rank",
    summary="masks that each rank draws by itself make the weights of the replicas differ",
    flavour="torch",
    rules=("DSL756",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("own-seed", {"own": True}),
        Case("same-seed", {"own": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Each rank draws a mask by its own generator."""
    return _train(rank, is_alike=False)


def fixed(rank: RankApi) -> Json:
    """The generator of the mask begins alike."""
    return _train(rank, is_alike=True)


def _train(rank: RankApi, is_alike: bool) -> Json:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from dslint.probe.parts.ddp import inputs, make_optimizer, weights

    rank.init()
    torch.manual_seed(rank.index if rank.params["own"] else 0)
    generator = torch.Generator().manual_seed(5) if is_alike else None
    net = torch.nn.Linear(4, 1).to(rank.device)
    model = DistributedDataParallel(net)
    optimizer = make_optimizer(model)
    for number in range(3):
        mask = torch.rand(net.weight.shape, generator=generator) > 0.5
        net.weight.data.mul_(mask.to(rank.device))
        optimizer.zero_grad()
        (model(inputs(rank, number)) - 1).square().mean().backward()
        optimizer.step()
        rank.mark(f"step {number}")
    return weights(net)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Weights that are not those of rank 0."""
    return first_apart(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of a seed of its own."""
    return {} if case.name == "own-seed" else None
