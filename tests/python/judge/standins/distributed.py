"""`torch.distributed`: collectives that exchange values among the simulated ranks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from ..api import api
from ..ranks import Group, current
from .tensors import Named, Tensor

PATH = "torch.distributed"
NAMES: dict[str, Any] = {}


class ReduceOp:
    SUM, AVG, MAX, MIN, PRODUCT = (Named(f"RedOpType.{n}") for n in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"))
    BAND, BOR = Named("RedOpType.BAND"), Named("RedOpType.BOR")


class Work:
    """The handle of an exchange that is already done."""

    def __init__(self, result: Any = None) -> None:
        self.result_value = result

    @api("torch.distributed.Work.wait")
    def wait(self, *_: Any) -> bool:
        return True

    @api("torch.distributed.Work.is_completed")
    def is_completed(self) -> bool:
        return True


class group:  # noqa: N801 - the name of torch
    WORLD = None


def _add(function: Callable[..., Any]) -> Callable[..., Any]:
    NAMES[function.__name__] = marked = api(f"{PATH}.{function.__name__}")(function)
    return marked


def _group(given: Any) -> Group:
    return given if isinstance(given, Group) else current().world.everyone


def _needs_group() -> None:
    if not current().own.get("started"):
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def _meet(given: Any, what: str, payload: Any = None) -> list[Any]:
    _needs_group()
    return current().world.meet(_group(given), what, payload)


def _work(async_op: bool) -> Work | None:
    return Work() if async_op else None


def _combined(op: Named, columns: list[list[Any]]) -> list[Any]:
    name = op.name.rpartition(".")[2]
    found = []
    for values in zip(*columns, strict=False):
        if name in ("MAX", "MIN"):
            bad = any(isinstance(v, float) and math.isnan(v) for v in values)
            found.append(math.nan if bad else (max if name == "MAX" else min)(values))
        elif name == "PRODUCT":
            found.append(math.prod(values))
        elif name in ("BAND", "BOR"):
            found.append((all if name == "BAND" else any)(values))
        else:
            found.append(sum(values) / len(values) if name == "AVG" else sum(values))
    return found


def _set(tensor: Any, flat: Any) -> None:
    if isinstance(tensor, Tensor):
        tensor.flat = list(flat) if len(flat) == len(tensor.flat) else (list(flat) * len(tensor.flat))
        tensor.flat = tensor.flat[: max(1, math.prod(tensor.dims))]


def _flat(tensor: Any) -> list[Any]:
    return list(tensor.flat) if isinstance(tensor, Tensor) else [0]


@_add
def init_process_group(backend: Any = None, *_: Any, **__: Any) -> None:
    current().own["started"] = True
    current().world.meet(current().world.everyone, "init_process_group")


@_add
def destroy_process_group(group: Any = None) -> None:
    current().own["started"] = False


@_add
def is_initialized() -> bool:
    return bool(current().own.get("started"))


@_add
def is_available() -> bool:
    return True


@_add
def get_rank(group: Any = None) -> int:
    _needs_group()
    members = _group(group).members
    return members.index(current().number) if current().number in members else -1


@_add
def get_world_size(group: Any = None) -> int:
    _needs_group()
    return len(_group(group).members) if current().number in _group(group).members else -1


@_add
def get_backend(group: Any = None) -> str:
    return "nccl"


@_add
def get_node_local_rank(fallback_rank: Any = None) -> int:
    return current().local


@_add
def new_group(ranks: Any = None, *_: Any, **__: Any) -> Any:
    _needs_group()
    rank = current()
    members = tuple(sorted(int(r) for r in ranks)) if ranks is not None else rank.world.everyone.members
    rank.world.meet(rank.world.everyone, f"new_group{members}")
    made = rank.own["groups"] = rank.own.get("groups", 0) + 1
    return Group(f"group {made} of {members}", members)


@_add
def get_process_group_ranks(group: Any = None) -> list[int]:
    return list(_group(group).members)


@_add
def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    _meet(group, "barrier")
    return _work(async_op)


@_add
def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    _meet(group, "monitored_barrier")


@_add
def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    _set(tensor, _combined(op, _meet(group, "all_reduce", _flat(tensor))))
    return _work(async_op)


@_add
def reduce(
    tensor: Any, dst: Any = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False, group_dst: Any = 0
) -> Any:
    dst = group_dst if dst is None else dst
    brought = _meet(group, f"reduce to {dst}", _flat(tensor))
    if current().number == dst:
        _set(tensor, _combined(op, brought))
    return _work(async_op)


@_add
def broadcast(tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = 0) -> Any:
    src = group_src if src is None else src
    brought = _meet(group, f"broadcast from {src}", _flat(tensor))
    members = _group(group).members
    _set(tensor, brought[members.index(src)] if src in members and len(brought) > 1 else brought[0])
    return _work(async_op)


@_add
def all_gather(tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    for place, flat in zip(tensor_list, _meet(group, "all_gather", _flat(tensor)), strict=False):
        _set(place, flat)
    return _work(async_op)


def _into(output: Any, brought: list[list[Any]]) -> None:
    output.flat = [x for flat in brought for x in flat]
    output.dims = (len(output.flat),)


@_add
def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    _into(output_tensor, _meet(group, "all_gather_into_tensor", _flat(input_tensor)))
    return _work(async_op)


@_add
def gather(tensor: Any, gather_list: Any = None, dst: Any = 0, group: Any = None, async_op: bool = False) -> Any:
    brought = _meet(group, f"gather to {dst or 0}", _flat(tensor))
    for place, flat in zip(gather_list or (), brought, strict=False):
        _set(place, flat)
    return _work(async_op)


@_add
def scatter(tensor: Any, scatter_list: Any = None, src: Any = 0, group: Any = None, async_op: bool = False) -> Any:
    src = src or 0
    brought = _meet(group, f"scatter from {src}", [_flat(t) for t in scatter_list or ()])
    members = _group(group).members
    parts = brought[members.index(src)]
    if parts:
        _set(tensor, parts[members.index(current().number) % len(parts)])
    return _work(async_op)


@_add
def reduce_scatter(
    output: Any, input_list: list[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    brought = _meet(group, "reduce_scatter", [_flat(t) for t in input_list])
    mine = _group(group).members.index(current().number)
    _set(output, _combined(op, [parts[mine] for parts in brought]))
    return _work(async_op)


@_add
def all_to_all(outputs: list[Any], inputs: list[Any], group: Any = None, async_op: bool = False) -> Any:
    brought = _meet(group, "all_to_all", [_flat(t) for t in inputs])
    mine = _group(group).members.index(current().number)
    for place, parts in zip(outputs, brought, strict=False):
        _set(place, parts[mine])
    return _work(async_op)


@_add
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = copy.deepcopy(_meet(group, "all_gather_object", obj))


@_add
def gather_object(obj: Any, object_gather_list: Any = None, dst: Any = 0, group: Any = None) -> None:
    brought = _meet(group, f"gather_object to {dst or 0}", obj)
    if object_gather_list is not None and current().number == (dst or 0):
        object_gather_list[:] = copy.deepcopy(brought)


@_add
def broadcast_object_list(object_list: list[Any], src: Any = 0, group: Any = None, device: Any = None) -> None:
    brought = _meet(group, f"broadcast_object_list from {src or 0}", list(object_list))
    object_list[:] = copy.deepcopy(brought[_group(group).members.index(src or 0)])


@_add
def scatter_object_list(outputs: list[Any], inputs: Any = None, src: Any = 0, group: Any = None) -> None:
    brought = _meet(group, f"scatter_object_list from {src or 0}", list(inputs or ()))
    members = _group(group).members
    outputs[0] = copy.deepcopy(brought[members.index(src or 0)][members.index(current().number)])


@_add
def send(tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None) -> None:
    current().world.send(dst if dst is not None else group_dst, tag, _flat(tensor))


@_add
def isend(tensor: Any, dst: Any = None, group: Any = None, tag: int = 0) -> Work:
    current().world.send(dst, tag, _flat(tensor))
    return Work()


@_add
def recv(tensor: Any, src: Any = None, group: Any = None, tag: int = 0) -> int:
    source, flat = current().world.receive(src, tag)
    _set(tensor, flat)
    return source


@_add
def irecv(tensor: Any, src: Any = None, group: Any = None, tag: int = 0) -> Work:
    _set(tensor, current().world.receive(src, tag)[1])
    return Work()


NAMES.update(ReduceOp=ReduceOp, group=group, GroupMember=group, ProcessGroup=Group, Work=Work)
NAMES["reduce_op"] = ReduceOp
