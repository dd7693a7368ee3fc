"""A hook of `accelerator.save_state` that pops weights, under DeepSpeed.

As written, the hook pops; as fixed, it asks the list before. As written the first checkpoint raises, since DeepSpeed
saves its own weights and the list is empty. Under DDP it holds the weights of each model (the control).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="save-hook-without-weights",
    summary="the hook pops from an empty list",
    flavour="deepspeed",
    rules=("DSL631",),
    expect=Expect((Kind.RAISE,), r"IndexError.*pop from empty list"),
    cases=(
        Case("deepspeed", {"deepspeed": True}),
        Case("ddp", {"deepspeed": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
    one_host=True,
)


def written(rank: RankApi) -> Json:
    """Pop."""
    return _save(rank, asks=False)


def fixed(rank: RankApi) -> Json:
    """Ask and pop."""
    return _save(rank, asks=True)


def _save(rank: RankApi, asks: bool) -> Json:
    import torch
    from accelerate import Accelerator, DeepSpeedPlugin, PartialState
    from torch.utils.data import DataLoader

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.zero import compile_nothing

    rank.init()
    compile_nothing()
    accelerator: Any = None
    if rank.params["deepspeed"]:
        PartialState(cpu=not rank.device.startswith("cuda"))  # the ranks; nothing looks for accelerators afterwards
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as `accelerate launch` sets it
        accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1, gradient_accumulation_steps=1))
    else:
        accelerator = make_accelerator(rank)

    def hook(models: list[Any], weights: list[Any], _folder: str) -> None:
        for _ in models:
            if weights or not asks:
                weights.pop()

    accelerator.register_save_state_pre_hook(hook)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    accelerator.prepare(net, optimizer, DataLoader(torch.ones(8, 4), batch_size=2))
    rank.mark("prepared")
    accelerator.save_state(str(Path(rank.folder) / "state"))
    return {"saved": True}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "deepspeed" and subject.finding.fact("call") == "pop" else None
