"""A model of 25 weights under a DeepSpeed engine: its config, its batches, and its weights as numbers to compare.

SGD without clipping, because Adam divides the size of a gradient away, and so does clipping, which DeepSpeed 0.19.8
does at a norm of 1.0 unless the config says otherwise: an error of scale would hardly move the weights.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Json, RankApi

WIDTH = 4


def config(stage: int, gas: int = 1, micro: int = 2, **changes: Json) -> dict[str, Json]:
    """A DeepSpeed config; ``changes`` are put into ``zero_optimization`` when DeepSpeed knows them there.

    Args:
        stage: ZeRO stage, 0 to 3.
        gas: micro batches an optimizer step.
        micro: rows of a micro batch on each rank.
    """
    zero: dict[str, Json] = {"stage": stage}
    if stage == 3:
        # Weights below the threshold stay whole on every rank, and so does everything that is used again within the
        # reuse distance: with the defaults a model this small is never partitioned again after its first forward,
        # and mistakes that show on a large one do not.
        zero["stage3_param_persistence_threshold"] = 0
        zero["stage3_max_live_parameters"] = 0
        zero["stage3_max_reuse_distance"] = 0
    top: dict[str, Json] = {"gradient_clipping": 0.0}
    top |= {key: changes.pop(key) for key in ("gradient_clipping", "checkpoint", "scheduler") if key in changes}
    return {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": gas,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {**zero, **changes},
        **top,
    }


def model(width: int = WIDTH) -> Any:
    """Two linear layers: every rank draws the same weights, since every rank has the same seed."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))


def engine(rank: RankApi, settings: dict[str, Json] | str, module: Any = None, **arguments: Any) -> Any:
    """The engine of ``deepspeed.initialize``; the process group must be there."""
    import deepspeed

    compile_nothing()
    module = model() if module is None else module
    found = deepspeed.initialize(model=module, config=settings, **arguments)[0]
    rank.mark("engine ready")
    return found


def compile_nothing() -> None:
    """Keep DeepSpeed from compiling a collective for the CPU on the spot: the calls go to the backend instead."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def batch(rank: RankApi, step: int, rows: int = 2, width: int = WIDTH) -> Any:
    """The rows that this rank gets in this step: always the same, and different on each rank."""
    import torch

    generator = torch.Generator().manual_seed(1000 * step + rank.index + 1)
    return torch.randn(rows, width, generator=generator).to(rank.device)


def loss_of(output: Any) -> Any:
    """A loss with gradients of a size that one step of SGD shows."""
    return (output - 1.0).pow(2).mean()


def train(rank: RankApi, trained: Any, steps: int, first: int = 0) -> None:
    """Forward, backward and step, ``steps`` times, as DeepSpeed documents it."""
    for step in range(first, first + steps):
        trained.backward(loss_of(trained(batch(rank, step))))
        trained.step()
        rank.mark(f"step {step}")


def weights(trained: Any) -> list[float]:
    """All weights in order, gathered when the stage is 3: then every rank must call it."""
    import deepspeed

    parameters = list(trained.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=trained.zero_optimization_stage() == 3):
        return [round(float(value), 6) for p in parameters for value in p.detach().flatten().cpu()]
