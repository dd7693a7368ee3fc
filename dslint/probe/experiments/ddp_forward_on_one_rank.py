"""Only rank 0 calls the forward of a `DistributedDataParallel` model, for instance to evaluate it.

As written, the wrapper is called; as fixed, `model.module` is. Before a forward the wrapper broadcasts the buffers of
the model (the running statistics of a BatchNorm, the frequencies of a rotary embedding) from rank 0, in evaluation as
well. The broadcast of rank 0 alone meets whatever the others do next: a barrier, or the gradients of the next step.
After a forward without gradients the wrapper leaves out the next broadcast, so that with `no_grad`, and a training step
as the next thing, the numbers of calls agree again and nothing happens (unless it is the second step, in which the
ranks also agree on buckets). A model without buffers is a control too. At the end of the job, where the others have
destroyed the process group, the broadcast meets nobody, unless the forward before had no gradients either.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

_GONE = Verdict.NOT_REPRODUCED

EXPERIMENT = Experiment(
    name="ddp-forward-on-one-rank",
    summary="the wrapper broadcasts buffers that the other ranks do not wait for",
    rules=("DSL235",),
    expect=Expect((Kind.STALL,), r"_distributed_broadcast_coalesced"),
    cases=(
        Case("then-barrier", {"buffers": True, "grad": False, "barrier": True}),
        Case("with-gradients", {"buffers": True, "grad": True, "barrier": False}),
        Case("then-training", {"buffers": True, "grad": False, "barrier": False}, verdict=_GONE),
        Case(
            "then-end",
            {"buffers": True, "grad": False, "barrier": False, "end": True},
            expect=Expect((Kind.STALL, Kind.RAISE), r"_distributed_broadcast_coalesced|closed by peer|reset by peer"),
        ),
        Case(
            "second-at-the-end",
            {"buffers": True, "grad": False, "barrier": False, "end": True, "before": True},
            verdict=_GONE,
        ),
        Case("no-buffers", {"buffers": False, "grad": False, "barrier": True}, verdict=_GONE),
    ),
)


def written(rank: RankApi) -> Json:
    """The wrapper is called."""
    return _run(rank, bare=False)


def fixed(rank: RankApi) -> Json:
    """The model inside is called."""
    return _run(rank, bare=True)


def _run(rank: RankApi, bare: bool) -> Json:
    import torch
    import torch.distributed as dist

    layers: list[Any] = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
    if rank.params["buffers"]:
        layers.insert(1, torch.nn.BatchNorm1d(4))
    model = make_ddp(rank, torch.nn.Sequential(*layers))
    optimizer = make_optimizer(model)
    for number in range(3):
        model.train()
        optimizer.zero_grad()
        model(inputs(rank, number)).square().mean().backward()
        optimizer.step()
        rank.mark(f"step {number}")
        if rank.index == 0 and number == 1 and not rank.params.get("end"):
            _evaluate(rank, model.module if bare else model)
        if rank.params["barrier"]:
            dist.barrier()
    if rank.params.get("before"):
        _evaluate(rank, model)
    if rank.index == 0 and rank.params.get("end"):
        _evaluate(rank, model.module if bare else model)
    return "trained"


def _evaluate(rank: RankApi, model: Any) -> None:
    import torch

    model.eval()
    with torch.set_grad_enabled(rank.params["grad"]):
        model(inputs(rank, 100))


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether the call computes gradients, and what follows it."""
    wanted = "with-gradients" if subject.finding.fact("grad") else "then-barrier"
    wanted = "then-end" if subject.finding.fact("over") else wanted
    return {} if case.name == wanted else None
