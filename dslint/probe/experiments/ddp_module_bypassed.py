"""Training calls the module inside `DistributedDataParallel` instead of the wrapper.

As written, the loss comes from `model.module(batch)`, or from the model kept from before it was wrapped; as fixed,
from `model(batch)`. The wrapper's forward prepares the averaging of the gradients, so without it every rank steps with
its own gradients: nothing fails, and the ranks train different models. Evaluation through `.module` is fine.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import diverged
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer, train_step, weights

EXPERIMENT = Experiment(
    name="ddp-module-bypassed",
    summary="gradients are not averaged, and the ranks train different models",
    rules=("DSL233", "DSL633"),
    expect=Expect((Kind.WRONG,), r"the weights of rank 1 differ from those of rank 0"),
    cases=(
        Case("module", {"kept": False, "evaluates": False}),
        Case("kept-from-before", {"kept": True, "evaluates": False}),
        Case("evaluated-only", {"kept": False, "evaluates": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Past the wrapper."""
    return _train(rank, bypassed=True)


def fixed(rank: RankApi) -> Json:
    """Through the wrapper."""
    return _train(rank, bypassed=False)


def _train(rank: RankApi, bypassed: bool) -> Json:
    import torch

    model = torch.nn.Linear(4, 1)
    wrapped = make_ddp(rank, model)
    inner = model if rank.params["kept"] else wrapped.module
    optimizer = make_optimizer(wrapped)
    for number in range(3):
        past = bypassed and not rank.params["evaluates"]
        train_step(rank, inner if past else wrapped, optimizer, number)
        if bypassed and rank.params["evaluates"]:
            with torch.no_grad():
                inner(inputs(rank, number))
    return {"weights": weights(wrapped)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks whose weights differ."""
    return diverged(values)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Through `.module`, or through the model from before."""
    return {} if case.name == ("kept-from-before" if subject.finding.fact("kept") else "module") else None
