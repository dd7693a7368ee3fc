"""A part of a model that becomes trainable after the optimizer was made without it.

As written, the first layer is frozen when the optimizer is made, and made trainable after the first step; as fixed, it
is frozen after the optimizer was made with all parameters. Both train the same steps. As written the layer never moves,
with an optimizer of the parameters that required gradients, and with the ZeRO optimizers of DeepSpeed, which leave out
what is frozen. An optimizer of torch that got all parameters moves it (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="unfrozen-after-initialize",
    summary="a layer that becomes trainable late never changes",
    flavour="deepspeed",
    one_host=True,
    rules=("DSL279",),
    expect=Expect((Kind.WRONG,), r"the layer that was made trainable has not moved"),
    cases=(
        Case("filtered", {"stage": -1, "filters": True}),
        Case("z1", {"stage": 1}),
        Case("z2", {"stage": 2}),
        Case("z3", {"stage": 3}),
        Case("all-parameters", {"stage": -1, "filters": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 3


def written(rank: RankApi) -> Json:
    """Frozen before the optimizer is made."""
    return _train(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """Frozen after that."""
    return _train(rank, is_early=False)


def _train(rank: RankApi, is_early: bool) -> Json:
    from dslint.probe.parts.zero import config, engine, model, train, weights

    rank.init()
    module = model()
    if is_early:
        module[0].requires_grad_(False)
    if rank.params["stage"] < 0:
        return _plain(rank, module)
    trained = engine(rank, config(rank.params["stage"]), module, model_parameters=module.parameters())
    before = weights(trained)[: module[0].in_features]
    train(rank, trained, 1)
    module[0].requires_grad_(True)
    train(rank, trained, STEPS, first=1)
    return {"moved": weights(trained)[: module[0].in_features] != before}


def _plain(rank: RankApi, module: Any) -> Json:
    """A filtered or whole optimizer of torch over `DistributedDataParallel`."""
    import torch

    from dslint.probe.parts.ddp import make_ddp
    from dslint.probe.parts.zero import batch, loss_of

    wrapped = make_ddp(rank, module, find_unused_parameters=True)
    wanted = [p for p in module.parameters() if p.requires_grad or not rank.params["filters"]]
    optimizer = torch.optim.SGD(wanted, lr=0.1)
    before = module[0].weight.detach().clone()
    for step in range(STEPS):
        module[0].requires_grad_(True)
        optimizer.zero_grad()
        loss_of(wrapped(batch(rank, step))).backward()
        optimizer.step()
        rank.mark(f"step {step}")
    return {"moved": not torch.equal(before, module[0].weight)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A layer that moves in the other arm."""
    if values[0]["moved"] == reference[0]["moved"]:
        return None
    return "the layer that was made trainable has not moved"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The engine at the stage of the run, else the optimizer."""
    stage = subject.finding.fact("stage")
    wanted = f"z{stage}" if subject.finding.fact("engine") and stage else "filtered"
    return {} if case.name == wanted and not subject.finding.fact("ddp") else None
