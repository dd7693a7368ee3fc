"""What a generated program finds when it imports torch, os or accelerate: stand-ins that record collectives.

Every stand-in belongs to one rank of one run. Values that ranks exchange (a reduced NaN flag, a broadcast decision) are
exchanged for real: the collective stops the run, the machine combines what the ranks brought, and the run is repeated
with the result (``machine.py``).
"""

from __future__ import annotations

import math
from typing import Any, NoReturn


class Suspended(BaseException):
    """The rank waits in a collective whose result is not known yet."""

    def __init__(self, kind: str, root: int, payload: Any) -> None:
        super().__init__(kind)
        self.kind, self.root, self.payload = kind, root, payload


class Runaway(BaseException):
    """The program does not end."""


class Rank:
    """One rank of one run: its place, the values of the unknowns, and what it has done so far."""

    def __init__(self, rank: int, world: int, flags: dict[str, bool], data: dict[str, bool], known: tuple) -> None:
        self.rank, self.world, self.flags, self.data, self.known = rank, world, flags, data, known
        self.trace: list[tuple[str, int | None, str]] = []
        self.subgroups = 0
        self.exchanged = 0
        self.ticks = 0
        self.is_over = False

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks > 60:
            raise Runaway

    def collective(self, kind: str, *, root: int | None = None, label: str = "", group: Any = None) -> None:
        if self.is_over:  # a ``finally`` on the way out of a run that stopped
            return
        if group is not None:
            self.subgroups += 1
            return
        self.trace.append((kind, root, label))

    def exchange(self, kind: str, root: int, payload: Any) -> Any:
        """What the ranks bring to the collective that was recorded last, combined."""
        if self.is_over:
            return payload
        if self.exchanged < len(self.known):
            self.exchanged += 1
            return self.known[self.exchanged - 1]
        self.is_over = True
        raise Suspended(kind, root, payload)

    def fact(self, name: str) -> bool:
        """A property of this rank's data."""
        return self.data.get(name, False)


class Anything:
    """An object of the program that no decision depends on."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A decorator of an unknown library leaves the function as it is.
        return args[0] if len(args) == 1 and callable(args[0]) and not isinstance(args[0], Anything) else self

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getitem__(self, key: Any) -> Anything:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __bool__(self) -> NoReturn:
        raise TypeError("a generated program tests a value that the oracle does not know")


ANYTHING = Anything()


class Tensor:
    """A tensor of one number. ``label`` names those that a program must not mix up; others are exchanged for real."""

    def __init__(self, value: float | bool = 0.0, label: str = "", *, exchanged: bool = False) -> None:
        self.value, self.label, self.exchanged = value, label, exchanged

    def item(self) -> float | bool:
        return self.value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def _new(self, value: float | bool) -> Tensor:
        return Tensor(value, exchanged=self.exchanged)

    def __gt__(self, other: float) -> Tensor:
        return self._new(self.value > other)

    def __eq__(self, other: object) -> Any:
        return self._new(self.value == other)

    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, other: float) -> Tensor:
        self.value += other
        return self

    def __truediv__(self, other: Any) -> Tensor:
        return self._new(self.value)

    def __mul__(self, other: Any) -> Tensor:
        return self._new(self.value)

    def float(self) -> Tensor:
        return self._new(float(self.value))

    def __getattr__(self, name: str) -> Any:
        if name in ("backward", "cuda", "to", "detach", "clone", "mean", "any", "all", "int", "sum", "div_"):
            return lambda *a, **k: self
        raise AttributeError(name)


class Batch:
    """A batch of this rank's part of the data."""

    def __init__(self, me: Rank) -> None:
        self._me = me

    def __len__(self) -> int:
        return 0 if self._me.fact("empty") else 4

    def __getitem__(self, key: str) -> Any:
        if key == "mask":
            return Tensor(0.0 if self._me.fact("mask") else 1.0, exchanged=self._me.data.get("mask") is not None)
        return ANYTHING

    def get(self, key: str) -> Any:
        return None if self._me.fact("labels") else ANYTHING


class Model(Anything):
    """The forward gives a loss, NaN where the data of the rank say so, or runs out of memory."""

    def __init__(self, me: Rank) -> None:
        self._me = me

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if self._me.fact("oom") and not self._me.is_over:
            raise RuntimeError("out of memory")
        return Tensor(math.nan if self._me.fact("nan") else 1.0, exchanged="nan" in self._me.data)


class Comparable:
    """The clock, or a random number: comparing it gives each rank its own answer."""

    def __init__(self, me: Rank, fact: str) -> None:
        self._me, self._fact = me, fact

    def __sub__(self, other: Any) -> Comparable:
        return self

    def __gt__(self, other: Any) -> bool:
        return self._me.fact(self._fact)

    __lt__ = __gt__


class Arguments:
    """Parsed arguments, or a config: the flags are the unknowns of the program."""

    def __init__(self, me: Rank) -> None:
        self._me = me
        self.rank = self.local_rank = me.rank
        self.world_size = me.world
        self.steps = self.epochs = 2
        self.num_items = 5
        self.mode = "fast" if me.flags.get("mode") else "full"

    def __getattr__(self, name: str) -> Any:
        flags = self.__dict__["_me"].flags
        if name in flags:
            return flags[name]
        if name in ("out", "path", "budget", "lr"):
            return ANYTHING
        raise AttributeError(name)
