"""Judge: ``deepspeed.initialize`` with a model of 25 weights on one rank of the CPU, then two steps.

``text`` as written and the batch sizes that the parser made of it for the world size of the case: one rank stands for
any of them. Where the config names no optimizer, the script passes one that suits.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from harness.judges import release
from harness.judges.parse import load
from harness.judges.serve import Case, TooLong, Verdict, accepted, program

release.warm_up()
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
# They describe ranks that are not there.
SHAPE = ("sequence_parallel_size", "data_parallel_size")
# Elements of a bucket of ZeRO, by default and as many write it. Some releases divide all of it in every step, a
# gigabyte of fresh pages; 25 weights fill none of either size.
USUAL_BUCKETS, SMALL_BUCKET = (2e8, 5e8), 1_000_000
# Micro-batches to two optimizer steps that are worth waiting for.
MOST = 10_000


def judge(case: Case) -> Verdict:
    """Build the engine and train."""
    import deepspeed
    import torch

    config = {key: value for key, value in load(case["text"]).items() if key not in (*BATCH, *SHAPE)}
    config |= {BATCH[1]: case["micro"], BATCH[2]: case["steps"]} | _with_small_buckets(config)
    os.chdir(tempfile.mkdtemp(dir=os.environ.get("DSLINT_JUDGE_FOLDER")))
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "CROSS_RANK": "0",
        "CROSS_SIZE": "1",
        "LOCAL_SIZE": "1",
    }
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    client = None if _names_optimizer(config) else _client(config, model)
    engine = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), optimizer=client, config=config, dist_init_required=False
    )[0]
    # A dynamic loss scale skips the first steps; a step that is skipped computes nothing.
    for done in range(50 * max(1, int(case["steps"]))):
        _step(engine)
        if done >= 2 and case["steps"] > MOST:
            raise TooLong(f"the first optimizer step comes after {case['steps']} micro-batches")
        if engine.global_steps - engine.skipped_steps >= 2:
            break
    return accepted(
        steps=int(engine.global_steps),
        lr=[float(value) for value in engine.get_lr()],
        dtype=str(next(engine.module.parameters()).dtype),
        optimizer=f"{type(engine.optimizer).__name__} of {_name(engine.basic_optimizer)}",
        stage=int(engine.zero_optimization_stage()),
        weights=_weights(engine),
    )


def _with_small_buckets(config: dict[str, Any]) -> dict[str, Any]:
    """The ZeRO section with a small bucket where it would have one of a usual size."""
    zero = config.get("zero_optimization")
    size = zero.get("reduce_bucket_size", 5e8) if isinstance(zero, dict) else None
    if isinstance(size, bool) or size not in USUAL_BUCKETS:
        return {}
    kind = type(size) if "reduce_bucket_size" in zero else int
    return {"zero_optimization": {**zero, "reduce_bucket_size": kind(SMALL_BUCKET)}}


def _names_optimizer(config: dict[str, Any]) -> bool:
    """DeepSpeed makes the optimizer itself; a section without a type is none."""
    section = config.get("optimizer")
    return isinstance(section, dict) and section.get("type") is not None


def _step(engine: Any) -> None:
    import torch

    rows = torch.randn(2, 4).to(engine.device)
    dtype = next(engine.module.parameters()).dtype
    asks = getattr(engine, "torch_autocast_enabled", None)
    rows = rows if asks is not None and asks() else rows.to(dtype)
    loss = (engine(rows).float() - 1.0).pow(2).mean()
    engine.backward(loss)
    engine.step()


def _weights(engine: Any) -> list[float]:
    """All weights in order after the steps."""
    import deepspeed

    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=engine.zero_optimization_stage() == 3):
        return [round(float(value), 6) for p in parameters for value in p.detach().flatten()]


def _client(config: dict[str, Any], model: Any) -> Any:
    """An optimizer that fits the config: with offload DeepSpeed wants its own."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    zero = config.get("zero_optimization")
    offload = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    device = offload.get("device") if isinstance(offload, dict) else None
    if device in ("cpu", "nvme") or (isinstance(zero, dict) and zero.get("cpu_offload")):
        return DeepSpeedCPUAdam(model.parameters(), lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def _name(optimizer: Any) -> str:
    return type(optimizer).__name__


if __name__ == "__main__":
    program(judge, forked=True)
