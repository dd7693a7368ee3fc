"""`accelerator.prepare` under DeepSpeed with two models, a model and no loader, or a loader with a batch sampler.

As written, one call gets both models, the model alone, or such a loader; as fixed, one model and its loader. As
written every rank stops in `prepare`. Without DeepSpeed both are taken (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="prepare-refused-under-deepspeed",
    summary="accelerate refuses what it is given to prepare under DeepSpeed",
    flavour="deepspeed",
    rules=("DSL624",),
    expect=Expect(
        (Kind.RAISE,), r"with multiple models when using DeepSpeed|at least one of training|has `None` as batch size"
    ),
    cases=(
        Case("models", {"models": 2, "loader": True, "deepspeed": True}),
        Case("loader", {"models": 1, "loader": False, "deepspeed": True}),
        Case("batch-sampler", {"models": 1, "loader": "sampled", "deepspeed": True}),
        Case("plain", {"models": 2, "loader": False, "deepspeed": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """What the case gives to `prepare`."""
    return _prepare(rank, rank.params["models"], rank.params["loader"])


def fixed(rank: RankApi) -> Json:
    """One model and its loader."""
    return _prepare(rank, 1, has_loader=True)


def _prepare(rank: RankApi, models: int, has_loader: Json) -> Json:
    import torch
    from torch.utils.data import DataLoader

    from dslint.probe.parts.zero import compile_nothing

    rank.init()
    compile_nothing()
    accelerator = _accelerator(rank)
    nets = [torch.nn.Linear(4, 1) for _ in range(models)]
    optimizer = torch.optim.AdamW(nets[0].parameters(), lr=0.1)
    loader = [DataLoader(torch.ones(8, 4), batch_size=2)] if has_loader else []
    if has_loader == "sampled":
        loader = [DataLoader(torch.ones(8, 4), batch_sampler=[[0, 1], [2, 3], [4, 5], [6, 7]])]
    prepared = accelerator.prepare(*nets, optimizer, *loader)
    return {"parts": len(prepared) > 0}


def _accelerator(rank: RankApi) -> Any:
    """An Accelerator over the ranks of the group, with DeepSpeed where the case says so."""
    import os

    from accelerate import Accelerator, DeepSpeedPlugin, PartialState

    from dslint.probe.parts.accel import make_accelerator

    if not rank.params["deepspeed"]:
        return make_accelerator(rank)
    PartialState(cpu=not rank.device.startswith("cuda"))  # the ranks; what follows does not look for accelerators
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as `accelerate launch` sets it
    return Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1, gradient_accumulation_steps=1))


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The mistake of the finding."""
    return {} if case.name == subject.finding.fact("kind") else None
