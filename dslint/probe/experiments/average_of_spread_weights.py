"""A moving average of the weights of a ZeRO-3 model.

As written, the average reads the parameters directly; as fixed, inside `deepspeed.zero.GatheredParameters`. At stage 3
the first update raises, since each weight is an empty tensor. At stage 2 the same code is right (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="average-of-spread-weights",
    summary="a moving average reads empty tensors where the weights are spread over the ranks",
    flavour="deepspeed",
    rules=("DSL630",),
    expect=Expect((Kind.RAISE,), r"RuntimeError.*size of tensor"),
    cases=(
        Case("z3", {"stage": 3}),
        Case("z2", {"stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Directly."""
    return _train(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """Inside a gather that all ranks enter."""
    return _train(rank, gathers=True)


def _train(rank: RankApi, gathers: bool) -> Json:
    import copy

    import deepspeed
    import torch

    from dslint.probe.parts.zero import batch, config, engine, loss_of, model

    rank.init()
    module = model()
    shadow = copy.deepcopy(module).requires_grad_(False)
    trained = engine(rank, config(rank.params["stage"]), module)
    trained.backward(loss_of(trained(batch(rank, 0))))
    trained.step()
    rank.mark("step")
    enabled = gathers and rank.params["stage"] == 3
    with torch.no_grad(), deepspeed.zero.GatheredParameters(list(trained.module.parameters()), enabled=enabled):
        for slow, fast in zip(shadow.parameters(), trained.module.parameters(), strict=True):
            slow.lerp_(fast.data.to(slow.dtype), 0.5)
    return {"averaged": [round(float(value), 4) for p in shadow.parameters() for value in p.flatten()]}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "z3" and subject.finding.fact("op") == "average" else None
