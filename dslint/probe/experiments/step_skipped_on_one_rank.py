"""One rank decides alone to skip a step or to leave the training loop.

As written, rank 1 follows what it sees itself: a loss that is not a number, a metric that says "stop", an out-of-memory
error that is caught. As fixed, the ranks first agree (the maximum of a flag over all ranks) and skip or leave together.
The backward of the others waits for the one that is missing; when it comes with the *next* batch, gradients of
different batches are averaged, and the loop ends with one rank a step short.

The controls wait for nobody: a model that no other rank trains, and a rank that asks its gradients after the backward,
when they are the averages of all ranks, so that all find the same and skip together.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

EXPERIMENT = Experiment(
    name="step-skipped-on-one-rank",
    summary="one rank skips a step or leaves the loop, and the backward of the others waits for it",
    rules=("DSL204",),
    expect=Expect((Kind.STALL,), r"_engine_run_backward"),
    cases=(
        Case("continue-on-nan", {"cause": "nan", "then": "continue"}),
        Case("continue-on-out-of-memory", {"cause": "memory", "then": "continue"}, rules=("DSL205",)),
        Case("leave-early", {"cause": "metric", "then": "leave"}),
        Case("skip-by-averaged-gradients", {"cause": "averages", "then": "continue"}, verdict=Verdict.NOT_REPRODUCED),
        Case("model-of-its-own", {"cause": "nan", "then": "continue", "own": True}, verdict=Verdict.NOT_REPRODUCED),
        Case(
            "model-of-its-own-out-of-memory",
            {"cause": "memory", "then": "continue", "own": True},
            verdict=Verdict.NOT_REPRODUCED,
            rules=("DSL205",),
        ),
    ),
)
_STEPS, _WHEN = 4, 1


def written(rank: RankApi) -> Json:
    """Each rank for itself."""
    return _train(rank, agreed=False)


def fixed(rank: RankApi) -> Json:
    """All ranks do what one of them has to do."""
    return _train(rank, agreed=True)


def _train(rank: RankApi, agreed: bool) -> int:
    import torch
    import torch.distributed as dist

    model = make_ddp(rank)
    if rank.params.get("own"):
        model = model.module
    optimizer = make_optimizer(model)
    made = 0
    for number in range(_STEPS):
        optimizer.zero_grad()
        loss, bad = _forward(rank, model, number)
        if agreed:
            flag = torch.tensor([float(bad)], device=rank.device)
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            bad = bool(flag.item())
        if bad and rank.params["then"] == "leave":
            break
        if bad:
            continue
        if rank.params["cause"] != "averages":
            loss.backward()
        optimizer.step()
        made += 1
        rank.mark(f"step {number}")
    return made


def _forward(rank: RankApi, model: Any, number: int) -> tuple[Any, bool]:
    """The loss of a batch, and whether this rank wants to skip it; by what it sees alone rank 1 does, once."""
    import torch

    cause = rank.params["cause"] if rank.index == 1 and number == _WHEN else ""
    rows = inputs(rank, number)
    if cause in ("nan", "averages"):
        rows = rows * float("nan")
    try:
        loss = (model(rows) - 1).square().mean()
        if cause == "memory":
            raise torch.OutOfMemoryError("the batch of this rank is too long")
    except torch.OutOfMemoryError:
        return None, True
    if rank.params["cause"] == "averages":
        loss.backward()
        return loss, not bool(torch.isfinite(model.module.weight.grad).all())
    return loss, cause == "metric" or not bool(torch.isfinite(loss))


def parameters(subject: Subject, _: Case) -> dict[str, Json] | None:
    """Flags that the loop of a Trainer looks at have an experiment of their own."""
    return None if subject.finding.fact("collective") == "flag" else {}
