"""`torch.save(model.state_dict())` of a ZeRO-3 model.

As written, rank 0 saves `engine.module.state_dict()`; as fixed, the weights are gathered on all ranks first. At stage 3
every tensor of the file has the shape (0,) and no error comes: the loss shows when the file is loaded. At stage 2 the
file is whole.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-state-dict-empty",
    summary="the saved state dict of a partitioned model holds empty tensors",
    rules=("DSL212",),
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"has the shape \[0\]"),
    cases=(
        Case("z3", {"stage": 3}),
        Case("z2", {"stage": 2}, verdict=Verdict.NOT_REPRODUCED),
        Case("z1", {"stage": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """As for a whole model."""
    return _save(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """Inside a gather."""
    return _save(rank, gathers=True)


def _save(rank: RankApi, gathers: bool) -> Json:
    import deepspeed
    import torch

    from dslint.probe.parts.zero import config, engine, train

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    train(rank, trained, 1)
    parameters = list(trained.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=gathers and rank.params["stage"] == 3):
        if rank.index == 0:
            torch.save(trained.module.state_dict(), "model.pt")
    rank.mark("saved")
    if rank.index != 0:
        return {}
    return {name: list(tensor.shape) for name, tensor in torch.load("model.pt", weights_only=True).items()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The census of the file: every shape must be that of the model."""
    for name, shape in values[0].items():
        if shape != reference[0][name]:
            return f"`{name}` in the file has the shape {shape}, the weight {reference[0][name]}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that the finding names, at stage 3."""
    return {} if (subject.finding.fact("call"), case.params["stage"]) == ("torch.save", 3) else None
