"""A statistic of a model's outputs that `all_reduce` sums, and a loss that is computed from it.

As written, `torch.distributed.all_reduce` sums in place; as fixed, `torch.distributed.nn.functional.all_reduce` returns
the sum and has a backward. As written the gradient of the DDP model is half of that on two ranks. Of a statistic that
carries no gradient both say the same (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp

EXPERIMENT = Experiment(
    name="sum-without-gradient",
    summary="the gradient is too small by the number of ranks",
    rules=("DSL622",),
    expect=Expect((Kind.WRONG,), r"0\.5 times"),
    cases=(
        Case("statistic", {"detached": False}),
        Case("detached", {"detached": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """In place."""
    return _gradient(rank, in_place=True)


def fixed(rank: RankApi) -> Json:
    """With a backward."""
    return _gradient(rank, in_place=False)


def _gradient(rank: RankApi, in_place: bool) -> Json:
    import torch
    import torch.distributed as dist
    import torch.distributed.nn.functional as with_backward

    torch.manual_seed(0)
    model = make_ddp(rank, torch.nn.Linear(4, 3))
    out = model(inputs(rank, 0))
    mean = (out.detach() if rank.params["detached"] else out).mean(0) / dist.get_world_size()
    if in_place:
        dist.all_reduce(mean)
    else:
        mean = with_backward.all_reduce(mean)
    loss = mean.square().sum()
    if rank.params["detached"]:
        loss = loss * out.mean()
    loss.backward()
    gradient: list[float] = model.module.weight.grad.flatten().tolist()
    return gradient


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A gradient of another size than in the other arm."""
    size, wanted = (sum(number * number for number in one[0]) ** 0.5 for one in (values, reference))
    return None if abs(size - wanted) < 1e-6 else f"the gradient is {size / wanted:.1f} times that with a backward"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is of this kind
    """A statistic with a gradient."""
    return {} if case.name == "statistic" else None
