"""A call of accelerate that talks to all ranks, made by the main process only.

As written, `accelerator.gather(...)` and the like stand behind `if accelerator.is_main_process:`; as fixed, every rank
calls. Two look-alikes that work are the controls: `main_process_first()`, which is itself a pair of barriers that the
ranks reach at different times, and a `wait_for_everyone()` inside it, whose barrier pairs up with its own ones (it
works, but the order that the block promises is gone). `save_state()` writes alone with DDP, a third control, and with
DeepSpeed begins `save_checkpoint` of the engine with a barrier, at every ZeRO stage.

gloo stands for NCCL: the calls are collectives of torch.distributed on either, and the lonely one has no partner.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator

EXPERIMENT = Experiment(
    name="accelerate-call-under-guard",
    summary="the main process makes a collective call of accelerate that the other ranks do not make",
    rules=("DSL201", "DSL202"),
    scales=True,
    flavour="transformers",
    expect=Expect((Kind.STALL,), r"distributed_c10d\.py"),
    cases=(
        Case("gather", {"call": "gather"}),
        Case("wait_for_everyone", {"call": "barrier"}),
        Case("reduce", {"call": "reduce"}),
        Case("pad_across_processes", {"call": "pad_across_processes"}),
        Case("gather_for_metrics", {"call": "gather_for_metrics"}),
        Case("broadcast", {"call": "broadcast"}),
        Case("gather_object", {"call": "gather_object"}),
        Case("broadcast_object_list", {"call": "broadcast_object_list"}),
        Case("check_trigger", {"call": "check_trigger"}),
        Case("prepare", {"call": "prepare"}, Expect((Kind.STALL,), r"_verify_param_shape|distributed_c10d")),
        Case("backward", {"call": "backward"}, Expect((Kind.STALL,), r"torch/autograd|graph\.py|distributed_c10d")),
        Case("enter-main_process_first", {"call": "enter"}),
        *(Case(f"save_state-z{stage}", {"call": "save_state", "stage": stage}) for stage in (2, 3, 0)),
        Case("save_state-ddp", {"call": "save_state", "stage": None}, verdict=Verdict.NOT_REPRODUCED),
        Case("main_process_first", {"call": "main_process_first"}, verdict=Verdict.NOT_REPRODUCED),
        Case("wait-in-main_process_first", {"call": "wait-in-it"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Only the main process calls (controls: every rank, each at its time)."""
    if rank.params["call"] == "save_state":
        return _save_state(rank, rank.index == 0)
    accelerator = make_accelerator(rank)
    if rank.params["call"] in ("main_process_first", "wait-in-it"):
        with accelerator.main_process_first():
            if rank.params["call"] == "wait-in-it":
                accelerator.wait_for_everyone()
        return rank.index
    prepared = _prepared(accelerator) if rank.params["call"] == "backward" else None
    if accelerator.is_main_process:
        _call(accelerator, rank.params["call"], prepared)
    rank.mark("past the guard")
    return rank.index


def fixed(rank: RankApi) -> Json:
    """Every rank calls."""
    if rank.params["call"] == "save_state":
        return _save_state(rank, True)
    accelerator = make_accelerator(rank)
    prepared = _prepared(accelerator) if rank.params["call"] == "backward" else None
    _call(accelerator, rank.params["call"], prepared)
    rank.mark("past the call")
    return rank.index


def _save_state(rank: RankApi, calls: bool) -> Json:
    import os

    from dslint.probe.parts.zero import compile_nothing, config, model

    stage: int | None = rank.params["stage"]
    if stage is not None:
        from accelerate import Accelerator, DeepSpeedPlugin, PartialState

        compile_nothing()
        rank.init()
        PartialState(cpu=not rank.device.startswith("cuda"))  # the ranks; what follows does not look for accelerators
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as `accelerate launch` sets it
        accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config(stage)))
        if accelerator.distributed_type != "DEEPSPEED" or accelerator.num_processes != rank.world:
            raise RuntimeError(f"accelerate runs {accelerator.distributed_type}, not DeepSpeed on all ranks")
    else:
        accelerator = make_accelerator(rank)
    accelerator.prepare(model())
    if calls:
        accelerator.save_state(rank.folder + "/state")
    rank.mark("past the guard")
    return rank.index


def _prepared(accelerator: Any) -> Any:
    """A prepared model, whose backward averages the gradients as long as it lives, and its loss."""
    import torch

    model = accelerator.prepare(torch.nn.Linear(2, 2))
    return model, model(torch.ones(1, 2, device=accelerator.device)).sum()


def _call(accelerator: Any, call: str, prepared: Any) -> None:
    import torch
    from accelerate import utils

    tensor = torch.ones(2, 3, device=accelerator.device)
    if call in ("gather", "reduce", "pad_across_processes", "gather_for_metrics"):
        getattr(accelerator, call)(tensor)
    elif call == "broadcast":
        utils.broadcast(tensor)
    elif call in ("gather_object", "broadcast_object_list"):
        getattr(utils, call)([accelerator.process_index])
    elif call == "check_trigger":
        accelerator.check_trigger()
    elif call == "prepare":
        accelerator.prepare(torch.nn.Linear(2, 2))
    elif call == "backward":
        accelerator.backward(prepared[1])
    elif call == "enter":
        with accelerator.main_process_first():
            pass
    else:
        accelerator.wait_for_everyone()


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the call that the finding names."""
    fact = subject.finding.fact
    call = fact("collective") if fact("family") == "accelerate" else None
    if call in ("synchronize_rng_states", "synchronize_rng_state"):  # broadcasts the state of each generator
        call = "broadcast"
    if call == "save_state":
        stage = fact("stage")
        return {} if case.params["call"] == call and case.params["stage"] == (2 if stage is None else stage) else None
    return {"call": call} if case.params["call"] == call else None
