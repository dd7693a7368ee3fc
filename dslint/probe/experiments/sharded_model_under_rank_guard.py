"""A call that puts a sharded model together, made by rank 0 only: FSDP and FSDP2 (`fully_shard`).

As written, rank 0 evaluates the model, or gathers its weights to save them, while the others go on; as fixed, every
rank calls. The lonely all-gather waits. The controls wait for nobody: a model under `NO_SHARD`, the `state_dict` of
FSDP2, which holds the parts, `get_model_state_dict` without `full_state_dict`, and `state_dict_type` alone.

gloo on the CPU stands for NCCL: the calls are the same collectives of torch.distributed.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.fsdp import make_layers, sharded

_SAFE = Verdict.NOT_REPRODUCED
_STRATEGIES = {"fsdp": "FULL_SHARD", "no_shard": "NO_SHARD", "fsdp2": ""}

EXPERIMENT = Experiment(
    name="sharded-model-under-rank-guard",
    summary="rank 0 alone makes a call of a sharded model that gathers its parameters",
    rules=("DSL201",),
    expect=Expect((Kind.STALL,), r"distributed_c10d|_functional_collectives|_fully_shard|torch/distributed"),
    cases=(
        Case("forward", {"kind": "fsdp", "call": "forward"}),
        Case("state_dict", {"kind": "fsdp", "call": "state_dict"}),
        Case("load_state_dict", {"kind": "fsdp", "call": "load_state_dict"}),
        Case("clip_grad_norm_", {"kind": "fsdp", "call": "clip_grad_norm_"}),
        Case("summon_full_params", {"kind": "fsdp", "call": "summon_full_params"}),
        Case("optim_state_dict", {"kind": "fsdp", "call": "optim_state_dict"}),
        Case("fsdp2-forward", {"kind": "fsdp2", "call": "forward"}),
        Case("full_tensor", {"kind": "fsdp2", "call": "full_tensor"}),
        Case("fsdp2-clip_grad_norm_", {"kind": "fsdp2", "call": "clip_grad_norm_"}),
        Case("get_model_state_dict", {"kind": "fsdp2", "call": "get_model_state_dict"}),
        Case("set_model_state_dict", {"kind": "fsdp2", "call": "set_model_state_dict"}),
        Case("forward-no_shard", {"kind": "no_shard", "call": "forward"}, verdict=_SAFE),
        Case("state_dict-no_shard", {"kind": "no_shard", "call": "state_dict"}, verdict=_SAFE),
        Case("state_dict_type", {"kind": "fsdp", "call": "state_dict_type"}, verdict=_SAFE),
        Case("fsdp2-state_dict", {"kind": "fsdp2", "call": "state_dict"}, verdict=_SAFE),
        Case("get_model_state_dict-parts", {"kind": "fsdp2", "call": "get_model_state_dict-parts"}, verdict=_SAFE),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 calls."""
    return _run(rank, rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """Every rank calls."""
    return _run(rank, True)


def _run(rank: RankApi, calls: bool) -> Json:
    import torch

    model = sharded(rank, make_layers(rank, outputs=4), _STRATEGIES[rank.params["kind"]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # One step, so that there are gradients and states.
    model(torch.ones(2, 4, device=rank.device)).sum().backward()
    optimizer.step()
    rank.mark("one step made")
    if calls:
        _call(rank, model, optimizer)
    rank.mark("past the guard")
    return rank.index


def _call(rank: RankApi, model: Any, optimizer: Any) -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    call = rank.params["call"]
    if call == "forward":
        # A model in training mode: without gradients FSDP keeps what it has gathered once.
        model(torch.ones(2, 4, device=rank.device))
    elif call == "state_dict":
        model.state_dict()
    elif call == "load_state_dict":
        model.load_state_dict({}, strict=False)
    elif call == "clip_grad_norm_" and rank.params["kind"] == "fsdp":
        model.clip_grad_norm_(1.0)
    elif call == "clip_grad_norm_":
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    elif call == "summon_full_params":
        with FullyShardedDataParallel.summon_full_params(model):
            pass
    elif call == "optim_state_dict":
        FullyShardedDataParallel.optim_state_dict(model, optimizer)
    elif call == "state_dict_type":
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            pass
    elif call == "full_tensor":
        [parameter.full_tensor() for parameter in model.parameters()]
    else:
        _call_state(call, model)


def _call_state(call: str, model: Any) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

    if call == "get_model_state_dict":
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    elif call == "get_model_state_dict-parts":
        get_model_state_dict(model)
    else:
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        set_model_state_dict(model, {}, options=options)


# What the rule knows and no case calls by name -> the case of the same mechanism.
_LIKE = {
    "full_optim_state_dict": "optim_state_dict", "sharded_optim_state_dict": "optim_state_dict",
    "scatter_full_optim_state_dict": "set_model_state_dict", "get_state_dict": "get_model_state_dict",
    "get_optimizer_state_dict": "get_model_state_dict", "set_state_dict": "set_model_state_dict",
    "set_optimizer_state_dict": "set_model_state_dict", "generate": "forward",
}  # fmt: skip


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the call that the finding names."""
    fact = subject.finding.fact
    named = str(fact("collective"))
    return dict(case.params) if fact("family") == "fsdp" and case.name == _LIKE.get(named, named) else None
