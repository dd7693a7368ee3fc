"""A collective of `torch.distributed` that only rank 0 reaches.

As written, rank 0 makes the call and then goes on to the next step together with the others; as fixed, all ranks make
it. The lonely call waits for partners, or pairs up with the *next* collective of the others: the rank that stands at
the end of the day need not be the one that made the mistake. Two cases show this: with the same operation later, the
other ranks finish, with a sum that was made for another call, and rank 0 stands at a call that is right.

A group of rank 0 alone needs nobody else, so that `new_group([0])` returns; but the ranks number their groups, and the
next group, which all of them make, has two different names: nobody finds the others.

Over gloo a wrong pair of different sizes aborts a rank where NCCL waits. The arms cannot show what NCCL does with it.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp

_ALONE = Expect((Kind.STALL,), r"distributed_c10d\.py")
_WRAPPED = Expect((Kind.STALL,), r"_verify_param_shape_across_processes")
_AVERAGED = Expect((Kind.STALL,), r"_engine_run_backward")
_PAIRED = Expect((Kind.STALL, Kind.SIGNAL, Kind.RAISE), r"distributed_c10d|SIGABRT|Connection|mismatch")

EXPERIMENT = Experiment(
    name="collective-under-rank-guard",
    summary="rank 0 makes a collective call that the other ranks do not make",
    rules=("DSL201",),
    scales=True,
    expect=_ALONE,
    cases=(
        Case("barrier", {"op": "barrier", "then": ""}),
        Case("monitored_barrier", {"op": "monitored_barrier", "then": ""}),
        Case("all_reduce", {"op": "all_reduce", "then": ""}),
        Case("broadcast", {"op": "broadcast", "then": ""}),
        Case("gather", {"op": "gather", "then": ""}),
        Case("all_gather_object", {"op": "all_gather_object", "then": ""}),
        Case("new_group", {"op": "new_group", "then": ""}),
        Case("new_group-of-one-then-new_group", {"op": "new_group-of-one", "then": "new_group"}),
        Case("DistributedDataParallel", {"op": "DistributedDataParallel", "then": ""}, _WRAPPED),
        Case("backward-of-DDP", {"op": "backward", "then": ""}, _AVERAGED),
        Case("checkpoint.save", {"op": "checkpoint.save", "then": ""}),
        Case("barrier-then-all_reduce", {"op": "barrier", "then": "all_reduce"}, _PAIRED),
        Case("broadcast-then-barrier", {"op": "broadcast", "then": "barrier"}, _PAIRED),
        Case("barrier-then-barrier", {"op": "barrier", "then": "barrier"}),
        Case("all_reduce-then-all_reduce", {"op": "all_reduce", "then": "all_reduce"}),
        Case("new_group-of-one", {"op": "new_group-of-one", "then": ""}, verdict=Verdict.NOT_REPRODUCED),
        Case("paired", {"op": "paired", "then": ""}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
# Further operations, and the case under which they run.
_LIKE = {
    "all_gather": "all_gather_object", "all_gather_into_tensor": "all_gather_object",
    "broadcast_object_list": "broadcast", "gather_object": "gather", "reduce": "gather", "scatter": "gather",
    "all_to_all": "all_gather_object", "all_to_all_single": "all_gather_object", "reduce_scatter": "all_reduce",
    "reduce_scatter_tensor": "all_reduce",
}  # fmt: skip
# What the rule knows and no arm calls by name -> the operation that it consists of, or begins with.
_CONSISTS_OF = {
    "_all_gather_base": "all_gather_into_tensor", "all_gather_coalesced": "all_gather",
    "all_reduce_coalesced": "all_reduce", "all_reduce_dict": "all_reduce", "all_reduce_params": "all_reduce",
    "scatter_object_list": "broadcast", "sync_random_seed": "broadcast", "collect_results": "all_gather_object",
    "collect_results_gpu": "all_gather_object", "collect_results_cpu": "broadcast",
    "checkpoint.async_save": "checkpoint.save", "checkpoint.save_state_dict": "checkpoint.save",
    "checkpoint.load": "checkpoint.save",
    "process_hf_dataset": "monitored_barrier", "initialize_model_parallel": "new_group", "rank_zero_first": "new_group",
    "distributed_concat": "all_gather", "distributed_broadcast_scalars": "all_gather",
    "reduce_boolean_decision": "all_reduce",
}  # fmt: skip

# Calls of frameworks that pass a barrier, or reduce something, whatever else they do.
_FAMILIES = ("torch", "mmengine", "lightning", "fabric", "composer", "colossalai", "openrlhf", "megatron", "trainer")
_ENDS_IN_BARRIER = frozenset(
    {
        *(("fabric", name) for name in ("save", "load")),
        *(("lightning", name) for name in ("fit", "validate", "test", "predict", "save_checkpoint")),
        *(("composer", name) for name in ("fit", "eval", "predict", "save_checkpoint")),
        *(("openrlhf", name) for name in ("save_model", "save_ckpt")),
        *(("megatron", name) for name in ("save_checkpoint", "load_checkpoint")),
    }
)


def written(rank: RankApi) -> Json:
    """Rank 0 calls, the others do not (control ``paired``: every rank does, on its own path)."""
    rank.init()
    model = _model(rank)
    loss = _loss(rank, model)
    if rank.index == 0:
        _call(rank, rank.params["op"], loss)
    elif rank.params["op"] == "paired":
        _call(rank, "paired")
    rank.mark("past the guard")
    return _call(rank, rank.params["then"])


def fixed(rank: RankApi) -> Json:
    """All ranks call."""
    rank.init()
    model = _model(rank)
    _call(rank, rank.params["op"], _loss(rank, model))
    rank.mark("past the call")
    return _call(rank, rank.params["then"])


def _model(rank: RankApi) -> Any:
    """A DDP model, which the arm holds: its hooks are gone with it; `None` where no backward is asked for."""
    return make_ddp(rank) if rank.params["op"] == "backward" else None


def _loss(rank: RankApi, model: Any) -> Any:
    """The loss of the model, whose forward all ranks run."""
    return model(inputs(rank, 0)).sum() if model is not None else None


def _call(rank: RankApi, op: str, loss: Any = None) -> Json:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(4, device=rank.device) * (rank.index + 1)
    many = [torch.zeros(4, device=rank.device) for _ in range(rank.world)]
    root = rank.index == 0
    if op in ("barrier", "paired", "monitored_barrier"):
        (dist.monitored_barrier if op == "monitored_barrier" else dist.barrier)()
    elif op in ("new_group", "new_group-of-one"):
        dist.new_group(None if op == "new_group" else [0])
    elif op == "backward":
        loss.backward()
    elif op == "all_reduce":
        dist.all_reduce(tensor)
    elif op in ("broadcast", "reduce"):
        getattr(dist, op)(tensor, 0)
    elif op == "broadcast_object_list":
        dist.broadcast_object_list([rank.index], src=0)
    elif op == "gather":
        dist.gather(tensor, many if root else None, dst=0)
    elif op == "gather_object":
        dist.gather_object(rank.index, [None] * rank.world if root else None, dst=0)
    elif op == "scatter":
        dist.scatter(tensor, many if root else None, src=0)
    else:
        _call_more(rank, op, tensor, many)
    return [float(number) for number in tensor]


def _call_more(rank: RankApi, op: str, tensor: Any, many: list[Any]) -> None:
    import torch
    import torch.distributed as dist

    flat = torch.zeros(4 * rank.world, device=rank.device)
    if op == "all_gather":
        dist.all_gather(many, tensor)
    elif op == "all_gather_into_tensor":
        dist.all_gather_into_tensor(flat, tensor)
    elif op == "all_gather_object":
        dist.all_gather_object([None] * rank.world, {"rank": rank.index})
    elif op == "all_to_all":
        dist.all_to_all(many, [tensor.clone() for _ in many])
    elif op == "all_to_all_single":
        dist.all_to_all_single(flat, torch.ones_like(flat))
    elif op == "reduce_scatter":
        dist.reduce_scatter(tensor, many)
    elif op == "reduce_scatter_tensor":
        dist.reduce_scatter_tensor(tensor, flat)
    elif op == "DistributedDataParallel":
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(rank.device))
    elif op == "checkpoint.save":
        import torch.distributed.checkpoint as checkpoint

        checkpoint.save({"weight": torch.zeros(2)}, checkpoint_id=f"{rank.folder}/checkpoint")


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that the finding names, when this file knows it."""
    named, family = str(subject.finding.fact("collective")), subject.finding.fact("family")
    call = _CONSISTS_OF.get(named, named)
    if (family, named) == ("torch", "backward"):
        return {"op": "backward"} if case.name == "backward-of-DDP" else None
    if (family, named) in _ENDS_IN_BARRIER:
        call = "barrier"
    if family not in _FAMILIES or case.name != _LIKE.get(call, call):
        return None
    return {"op": call}
