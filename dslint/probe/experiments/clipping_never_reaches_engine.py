"""`accelerator.clip_grad_norm_` under DeepSpeed, with a plugin that says nothing of `gradient_clipping`.

As written, the script clips by the Accelerator alone; as fixed, the plugin has the norm, too. The call leaves the
gradients alone, and the engine clips at a norm of its own, silently. Where the script asks for the norm that the engine
takes anyway, both ways end with the same weights (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

EXPERIMENT = Experiment(
    name="clipping-never-reaches-engine",
    summary="the norm of the script never reaches the engine",
    flavour="deepspeed",
    rules=("DSL606",),
    expect=Expect((Kind.WRONG,), r"away from those of the correct run"),
    cases=(
        Case("plugin", {"most": 0.05, "by": "plugin"}),
        Case("config", {"most": 0.05, "by": "config"}),
        Case("same-norm", {"most": 1.0, "by": "plugin"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """By the Accelerator."""
    return _train(rank, is_told=False)


def fixed(rank: RankApi) -> Json:
    """By the engine, too."""
    return _train(rank, is_told=True)


def _train(rank: RankApi, is_told: bool) -> Json:
    import os

    import torch
    from accelerate import Accelerator, DeepSpeedPlugin, PartialState

    from dslint.probe.parts.zero import batch, compile_nothing, model

    compile_nothing()
    rank.init()
    PartialState(cpu=not rank.device.startswith("cuda"))  # the ranks; what follows does not look for accelerators
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as `accelerate launch` sets it
    most = float(rank.params["most"])
    if rank.params["by"] == "plugin":
        plugin = DeepSpeedPlugin(zero_stage=1, gradient_clipping=most if is_told else None)
    else:
        told = {"gradient_clipping": most} if is_told else {}
        zero = {"stage": 1}
        plugin = DeepSpeedPlugin(hf_ds_config={"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero, **told})
    plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
    plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
    accelerator = Accelerator(deepspeed_plugin=plugin)
    if accelerator.distributed_type != "DEEPSPEED" or accelerator.num_processes != rank.world:
        raise RuntimeError(f"accelerate runs {accelerator.distributed_type}, not DeepSpeed on all ranks")
    net: Any = model()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    for step in range(2):
        accelerator.backward(50 * (net(batch(rank, step)) - 1.0).pow(2).mean())
        accelerator.clip_grad_norm_(net.parameters(), most)
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {step}")
    return {"weights": [float(value) for p in net.module.parameters() for value in p.detach().float().flatten()]}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Weights that went further than the clipping allows."""
    return off_course(values, reference)
