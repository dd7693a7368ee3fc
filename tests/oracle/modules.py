"""The modules that a generated program imports, for one rank."""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
from types import SimpleNamespace
from typing import Any

from oracle.stubs import ANYTHING, Anything, Arguments, Batch, Comparable, Model, Rank, Tensor


class Module(Anything):
    """A module with some real members; everything else is ``ANYTHING``."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


class Communication(Module):
    """torch.distributed and its look-alike of DeepSpeed."""

    def __init__(self, me: Rank) -> None:
        super().__init__(ReduceOp=ANYTHING)
        self._me = me

    def get_rank(self, group: Any = None) -> int:
        return self._me.rank

    def get_world_size(self, group: Any = None) -> int:
        return self._me.world

    def is_initialized(self) -> bool:
        return True

    is_available = is_initialized

    def barrier(self, group: Any = None) -> None:
        self._me.collective("barrier", group=group)

    def new_group(self, ranks: Any = None) -> object:
        self._me.collective("new_group")
        return object()

    def all_reduce(self, tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Anything:
        self._me.collective("all_reduce", label=getattr(tensor, "label", ""), group=group)
        if group is None and isinstance(tensor, Tensor) and tensor.exchanged:
            tensor.value = self._me.exchange("all_reduce", 0, tensor.value)
        return ANYTHING

    def broadcast(self, tensor: Any, src: int, group: Any = None) -> None:
        self._me.collective("broadcast", root=src, group=group)
        if group is None and isinstance(tensor, Tensor) and tensor.exchanged:
            tensor.value = self._me.exchange("broadcast", src, tensor.value)

    def broadcast_object_list(self, objects: list[Any], src: int = 0, group: Any = None) -> None:
        self._me.collective("broadcast_object_list", root=src, group=group)
        if group is None and all(isinstance(o, bool) for o in objects):
            objects[:] = self._me.exchange("broadcast", src, tuple(objects))

    def all_gather_object(self, found: list[Any], mine: Any, group: Any = None) -> None:
        self._me.collective("all_gather_object", group=group)
        if group is None and isinstance(mine, bool):
            found[:] = self._me.exchange("all_gather", 0, mine)

    def all_gather(self, found: Any, tensor: Any, group: Any = None) -> None:
        self._me.collective("all_gather", group=group)

    def reduce(self, tensor: Any, dst: int, op: Any = None, group: Any = None) -> None:
        self._me.collective("reduce", root=dst, group=group)

    def gather(self, tensor: Any, gather_list: Any = None, dst: int = 0, group: Any = None) -> None:
        self._me.collective("gather", root=dst, group=group)


def main_only(me: Rank) -> Any:
    def decorator(function: Any) -> Any:
        return functools.wraps(function)(lambda *a, **k: function(*a, **k) if me.rank == 0 else None)

    return decorator


class Accelerator(Anything):
    """accelerate's object with the calls that the programs use."""

    def __init__(self, me: Rank) -> None:
        self._me = me
        self.is_main_process = self.is_local_main_process = me.rank == 0
        self.on_main_process = main_only(me)
        self.process_index = me.rank
        self.num_processes = me.world

    def wait_for_everyone(self) -> None:
        self._me.collective("barrier")

    def gather(self, tensor: Any) -> Any:
        self._me.collective("all_gather")
        if isinstance(tensor, Tensor) and tensor.exchanged:
            return Tensor(self._me.exchange("all_reduce", 0, tensor.value), exchanged=True)
        return tensor

    def reduce(self, tensor: Any, reduction: str = "sum") -> Any:
        self._me.collective("all_reduce", label=getattr(tensor, "label", ""))
        if isinstance(tensor, Tensor) and tensor.exchanged:
            return Tensor(self._me.exchange("all_reduce", 0, tensor.value), exchanged=True)
        return tensor


def _torch(me: Rank, comm: Communication) -> Module:
    def tensor(value: Any, **_: Any) -> Tensor:
        inner = value[0] if isinstance(value, list) else value
        plain = float(inner.value) if isinstance(inner, Tensor) else float(inner)
        return Tensor(plain, exchanged=True)

    def unary(test: Any) -> Any:
        return lambda t: Tensor(test(t.value), exchanged=t.exchanged)

    return Module(
        distributed=comm,
        tensor=tensor,
        zeros=lambda *a, **k: Tensor(0.0, exchanged=True),
        zeros_like=lambda *a, **k: Tensor(0.0),
        empty=lambda *a, **k: Tensor(0.0),
        isnan=unary(math.isnan),
        isfinite=unary(math.isfinite),
        isinf=unary(math.isinf),
    )


def _leave(code: object = None) -> None:
    raise SystemExit(code)


def _given(value: Any, *_: Any, **__: Any) -> Any:
    return value


def namespace(me: Rank) -> dict[str, Any]:
    """The globals of a program: its builtins import the stand-ins."""
    comm = Communication(me)
    environ = {"RANK": str(me.rank), "LOCAL_RANK": str(me.rank), "WORLD_SIZE": str(me.world)}
    torch = _torch(me, comm)
    os = Module(
        environ=environ,
        getenv=environ.get,
        path=Module(exists=lambda *_: me.flags.get("exists", False), join=lambda *a: ANYTHING),
    )
    arguments = Arguments(me)
    common: dict[str, Any] = {
        "args": arguments,
        "model": Model(me),
        "loader": [Batch(me), Batch(me)],
        "items": list(range(5)),
        "grads": Tensor(label="grads"),
        "stats": Tensor(label="stats"),
    }
    members = {name: functools.partial(_given, value) for name, value in common.items()}
    modules = {
        "torch": torch,
        "os": os,
        "sys": Module(exit=_leave),
        "math": math,
        "time": Module(time=lambda: Comparable(me, "clock")),
        "random": Module(random=lambda: Comparable(me, "random")),
        "functools": functools,
        "contextlib": contextlib,
        "logging": Module(),
        "deepspeed": Module(comm=comm),
        "accelerate": Module(Accelerator=lambda *a, **k: Accelerator(me)),
        "lightning": Module(rank_zero_only=main_only(me)),
        "common": Module(**{f"make_{n}": m for n, m in members.items()}),
    }

    def load(name: str, _g: Any = None, _l: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        top = modules.get(name.split(".")[0], ANYTHING)
        if not fromlist or name.split(".")[0] == "lightning":
            return top
        for part in name.split(".")[1:]:
            top = getattr(top, part)
        return top

    own = dict(vars(builtins))
    own.update(print=lambda *a, **k: None, open=lambda *a, **k: ANYTHING, exit=_leave, quit=_leave, __import__=load)
    known = SimpleNamespace(**common, rank=me.rank, local_rank=me.rank, world_size=me.world)
    return {
        "__builtins__": own,
        "__name__": "__main__",
        "_tick": me.tick,
        "_known": known,
        "_set": me.flags.get("a set of ranks", False),
    }
