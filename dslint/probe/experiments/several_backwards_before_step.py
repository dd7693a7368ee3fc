"""Two backwards for one step under DeepSpeed, through an Accelerator or by the engine itself.

As written, each of two losses has its own backward, and one step follows; as fixed, one backward of their sum. An
Accelerator that works with DeepSpeed steps in each backward; an engine keeps the gradients of the last one. Without
DeepSpeed the gradients add up, and so they do at stage 3 (the controls).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

EXPERIMENT = Experiment(
    name="several-backwards-before-step",
    summary="two backwards for one step under DeepSpeed",
    flavour="deepspeed",
    rules=("DSL685",),
    expect=Expect((Kind.WRONG, Kind.RAISE), r"away from those of the correct run|TypeError"),
    cases=(
        Case("accelerate", {"by": "accelerate", "stage": 2}),
        Case("engine", {"by": "engine", "stage": 2}),
        Case("engine-z1", {"by": "engine", "stage": 1}),
        Case("plain", {"by": "plain", "stage": 0}, verdict=Verdict.NOT_REPRODUCED),
        Case("engine-z3", {"by": "engine", "stage": 3}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """A backward for each loss."""
    return _train(rank, is_apart=True)


def fixed(rank: RankApi) -> Json:
    """One backward of the sum."""
    return _train(rank, is_apart=False)


def _train(rank: RankApi, is_apart: bool) -> Json:
    return _by_engine(rank, is_apart) if rank.params["by"] == "engine" else _by_accelerator(rank, is_apart)


def _by_engine(rank: RankApi, is_apart: bool) -> Json:
    from dslint.probe.parts.zero import batch, config, engine, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    for step in range(2):
        for loss in _losses(trained, batch(rank, step), is_apart):
            trained.backward(loss)
        trained.step()
        rank.mark(f"step {step}")
    return {"weights": weights(trained)}


def _by_accelerator(rank: RankApi, is_apart: bool) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, compile_nothing, model

    compile_nothing()
    rank.init()
    accelerator = _accelerator(rank)
    net: Any = model()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    for step in range(2):
        for loss in _losses(net, batch(rank, step), is_apart):
            accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {step}")
    return {"weights": [float(value) for p in net.module.parameters() for value in p.detach().float().flatten()]}


def _losses(net: Any, rows: Any, is_apart: bool) -> Any:
    """Two losses, each of its own forward, one after the other; or their sum."""
    if not is_apart:
        yield 5 * (net(rows) - 1.0).pow(2).mean() + 5 * (net(2 * rows) + 1.0).pow(2).mean()
        return
    yield 5 * (net(rows) - 1.0).pow(2).mean()
    yield 5 * (net(2 * rows) + 1.0).pow(2).mean()


def _accelerator(rank: RankApi) -> Any:
    import os

    from accelerate import Accelerator, DeepSpeedPlugin, PartialState

    from dslint.probe.parts.accel import make_accelerator

    if rank.params["by"] == "plain":
        return make_accelerator(rank)
    PartialState(cpu=not rank.device.startswith("cuda"))  # the ranks; what follows does not look for accelerators
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as `accelerate launch` sets it
    plugin = DeepSpeedPlugin(zero_stage=rank.params["stage"], gradient_accumulation_steps=1)
    plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
    plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
    return Accelerator(deepspeed_plugin=plugin)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other weights."""
    return off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Who runs the backward."""
    return {} if case.name == subject.finding.fact("by") else None
