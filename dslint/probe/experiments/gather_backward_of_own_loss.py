"""A gather whose backward hands on this rank's own part of the gradients, without a sum over the ranks.

As written, the backward returns `grads[rank]`; as fixed, it sums first. The loss compares the own rows with all rows:
the gradient of the DDP model points in another direction than that of the whole batch on one rank. Where every rank
computes the loss of all rows against all rows, it points in the same (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp

EXPERIMENT = Experiment(
    name="gather-backward-of-own-loss",
    summary="the gradient points in another direction than that of the whole batch",
    rules=("DSL620",),
    expect=Expect((Kind.WRONG,), r"another direction"),
    cases=(
        Case("own-against-all", {"all": False}),
        Case("all-against-all", {"all": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """This rank's own part."""
    return _gradient(rank, sums=False)


def fixed(rank: RankApi) -> Json:
    """The sum over the ranks first."""
    return _gradient(rank, sums=True)


def _gradient(rank: RankApi, sums: bool) -> Json:
    import torch
    import torch.distributed as dist

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Json, rows: Json) -> Json:  # noqa: ARG004 - of autograd
            parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, rows.contiguous())
            return tuple(parts)

        @staticmethod
        def backward(ctx: Json, *grads: Json) -> Json:  # noqa: ARG004 - of autograd
            stacked = torch.stack(grads)
            if sums:
                dist.all_reduce(stacked)
            return stacked[rank.index]

    rank.init()
    torch.manual_seed(0)
    model = make_ddp(rank, torch.nn.Linear(4, 3))
    rows = model(inputs(rank, 0))
    everything = torch.cat(Gather.apply(rows))
    mine, first = (everything, 0) if rank.params["all"] else (rows, rank.index * len(rows))
    wanted = torch.arange(len(mine), device=rank.device) + first
    torch.nn.functional.cross_entropy(mine @ everything.T, wanted).backward()
    gradient = model.module.weight.grad.flatten()
    direction: list[float] = (gradient / gradient.norm()).tolist()
    return direction


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another direction than with the sum."""
    cosine = sum(a * b for a, b in zip(values[0], reference[0], strict=True))
    return None if cosine > 0.9999 else f"the gradient points in another direction: cosine {cosine:.3f}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is of this kind
    """Own rows against all rows."""
    return {} if case.name == "own-against-all" else None
