"""A model whose gradients the script averages by hand, after each rank has drawn its first weights by itself.

As written, the seed holds the rank: gradients are equal afterwards, and weights never. As fixed, rank 0 sends its
weights to the others first. The same seed on all ranks needs no sending (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import first_apart

EXPERIMENT = Experiment(
    name="replicas-begin-apart",
    summary="replicas with weights of their own get the same gradients, and stay apart",
    flavour="torch",
    rules=("DSL690",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 0 and rank 1 differ"),
    cases=(
        Case("own-seed", {"own": True}),
        Case("same-seed", {"own": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Nothing makes the first weights equal."""
    return _train(rank, is_sent=False)


def fixed(rank: RankApi) -> Json:
    """Rank 0 sends its own."""
    return _train(rank, is_sent=True)


def _train(rank: RankApi, is_sent: bool) -> Json:
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.ddp import inputs, make_optimizer, weights

    rank.init()
    torch.manual_seed(rank.index if rank.params["own"] else 0)
    model = torch.nn.Linear(4, 1).to(rank.device)
    for parameter in model.parameters() if is_sent else ():
        dist.broadcast(parameter.data, src=0)
    optimizer = make_optimizer(model)
    for number in range(3):
        optimizer.zero_grad()
        (model(inputs(rank, number)) - 1).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        rank.mark(f"step {number}")
    return weights(model)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Weights that are not those of rank 0."""
    return first_apart(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of a seed of its own."""
    return {} if case.name == "own-seed" else None
