"""What one rank sees of the machine: environment, arguments, output, clock, random numbers, names, order of sets."""

from __future__ import annotations

import contextlib
import datetime as datetime_module
import importlib
import io
import os
import platform
import random
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from .ranks import Rank, current

_REAL_SET = set


class _SetType(type):
    """`isinstance(x, set)` of a program also holds for plain sets (of `dict.keys() & ...`)."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL_SET)


class RankSet(set, metaclass=_SetType):  # type: ignore[type-arg]
    """A set whose strings come in an order of the rank's own, as with a hash seed for each process."""

    def __iter__(self) -> Iterator[Any]:
        items = list(_REAL_SET.__iter__(self))
        if any(isinstance(i, str) for i in items):
            salt = current().number
            items.sort(key=lambda i: zlib.crc32(f"{salt}:{i!r}".encode()))
        return iter(items)

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self)) + "}" if self else "set()"

    def pop(self) -> Any:
        for item in self:
            self.remove(item)
            return item
        raise KeyError("pop from an empty set")

    def __reduce__(self) -> Any:
        return (RankSet, (list(self),))


def _same_type(name: str) -> Any:
    real = getattr(_REAL_SET, name)

    def method(self: RankSet, *others: Iterable[Any]) -> Any:
        result = real(self, *others)
        return RankSet(result) if isinstance(result, _REAL_SET) else result

    method.__name__ = name
    return method


for _name in ("__or__", "__and__", "__sub__", "__xor__", "__ror__", "__rand__", "__rsub__", "__rxor__"):
    setattr(RankSet, _name, _same_type(_name))
for _name in ("union", "intersection", "difference", "symmetric_difference", "copy"):
    setattr(RankSet, _name, _same_type(_name))
RankSet.__name__ = RankSet.__qualname__ = "set"
RankSet.__module__ = "builtins"


def rank_hash(value: object) -> int:
    """`hash` with a seed for each rank."""
    if isinstance(value, str | bytes):
        return zlib.crc32(f"{current().number}:{value!r}".encode()) * 0x1000193 % (1 << 61)
    return hash(value)


def environment(rank: Rank, given: dict[str, str]) -> dict[str, str]:
    """The variables that a launcher sets, on top of what is equal everywhere."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "USER": "user",
        "RANK": str(rank.number),
        "LOCAL_RANK": str(rank.local),
        "WORLD_SIZE": str(rank.size),
        "LOCAL_WORLD_SIZE": str(rank.per_node),
        "GROUP_RANK": str(rank.node),
        "NODE_RANK": str(rank.node),
        "MASTER_ADDR": "host0",
        "MASTER_PORT": "29500",
        "HOSTNAME": f"host{rank.node}",
        **given,
    }


def _clock(scale: float = 1.0) -> Any:
    def now(*_: Any) -> Any:
        own = current().own
        own["clock"] = own.get("clock", 0.0) + 0.25 + 0.0625 * current().number
        value = (1_700_000_000 + 13 * current().number + own["clock"]) * scale
        return int(value) if scale != 1.0 else value

    return now


class _Datetime(datetime_module.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.fromtimestamp(time.time())

    @classmethod
    def today(cls) -> Any:
        return cls.fromtimestamp(time.time())


def _urandom(count: int) -> bytes:
    own = current().own.setdefault("entropy", random.Random(7000 + current().number))
    return bytes(own.randrange(256) for _ in range(count))


def _exit_now(code: int = 0) -> None:
    raise SystemExit(code)


def _patches(import_module: Any) -> list[tuple[Any, str, Any]]:
    return [
        (time, "time", _clock()),
        (time, "perf_counter", _clock()),
        (time, "monotonic", _clock()),
        (time, "process_time", _clock()),
        (time, "time_ns", _clock(1e9)),
        (time, "perf_counter_ns", _clock(1e9)),
        (time, "sleep", lambda seconds: None),
        (datetime_module, "datetime", _Datetime),
        (os, "getpid", lambda: 4000 + current().number),
        (os, "urandom", _urandom),
        (os, "_exit", _exit_now),
        (os, "cpu_count", lambda: 8),
        (socket, "gethostname", lambda: f"host{current().node}"),
        (socket, "getfqdn", lambda *_: f"host{current().node}"),
        (platform, "node", lambda: f"host{current().node}"),
        (importlib, "import_module", import_module),
    ]


@contextlib.contextmanager
def patched(import_module: Any) -> Iterator[None]:
    """The standard library answers as the running rank would be answered, for the time of a run."""
    patches = _patches(import_module)
    before = [getattr(owner, name) for owner, name, _ in patches]
    for owner, name, new in patches:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for (owner, name, _), old in zip(patches, before, strict=True):
            setattr(owner, name, old)


class Surroundings:
    """Swaps in what belongs to one rank when its turn comes, and out again."""

    def __init__(self, argv: list[str], env: dict[str, str], seed: int) -> None:
        self._argv, self._env, self._seed = argv, env, seed
        self._outside: dict[str, Any] = {}

    def enter(self, rank: Rank) -> None:
        own = rank.own
        if "environ" not in own:
            own["environ"] = environment(rank, self._env)
            own["argv"] = [a.replace("{local_rank}", str(rank.local)) for a in self._argv]
            own["output"] = io.StringIO()
            own["random"] = random.Random(self._seed * 1009 + rank.number).getstate()
            own["torch random"] = random.Random(self._seed * 2003 + rank.number)
            own["modules"] = {}
        out = self._outside
        out["environ"], out["argv"], out["random"] = dict(os.environ), sys.argv, random.getstate()
        out["stdout"], out["stderr"], out["path"] = sys.stdout, sys.stderr, list(sys.path)
        out["modules"] = {n: sys.modules[n] for n in own["modules"] if n in sys.modules}
        out["__main__"] = sys.modules.get("__main__")
        _set_environ(own["environ"])
        sys.argv, sys.stdout, sys.stderr = own["argv"], own["output"], own["output"]
        sys.modules.update(own["modules"])
        random.setstate(own["random"])

    def leave(self, rank: Rank) -> None:
        own, out = rank.own, self._outside
        own["environ"], own["argv"], own["random"] = dict(os.environ), sys.argv, random.getstate()
        _set_environ(out["environ"])
        sys.argv, sys.stdout, sys.stderr = out["argv"], out["stdout"], out["stderr"]
        sys.path[:] = out["path"]
        random.setstate(out["random"])
        for name in own["modules"]:
            sys.modules.pop(name, None)
        sys.modules.update(out["modules"])
        if out["__main__"] is not None:
            sys.modules["__main__"] = out["__main__"]


def _set_environ(wanted: dict[str, str]) -> None:
    for name in [n for n in os.environ if n not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
