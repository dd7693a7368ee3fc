"""What the judge asks of the engine, and `believe`, which asks `dslint.python` (`beliefs.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dslint.python.events import Event, Lost, Seq

from .ranks import EventId
from .worlds import Job

Site = tuple[str, int, int, int, int]


class Claim(Protocol):
    """What the engine says of one expression."""

    @property
    def lost(self) -> bool:
        """The engine says that it does not know: allowed, counted."""
        ...

    @property
    def same(self) -> bool:
        """Claimed to be equal on all ranks."""
        ...

    @property
    def unasked(self) -> bool:
        """The engine gives such expressions no value (the function of a method call): not counted."""
        ...

    @property
    def vague(self) -> bool:
        """It says how far the value is the same on all ranks, and nothing else."""
        ...

    def may_be(self, value: object, rank: int, world: int) -> bool:
        """Whether the value is among those that the engine thinks possible on this rank."""
        ...


class Belief(Protocol):
    """What the engine says of one program, for one way to launch it."""

    @property
    def tree(self) -> Seq:
        """Event tree of the entry script."""
        ...

    def value(self, site: Site) -> Claim | None:
        """The claim for an expression; None: never reached."""
        ...

    def counts(self, event: Event) -> bool:
        """Whether an event of the tree is one that runs record (a call of a stand-in library)."""
        ...

    def in_alphabet(self, event: EventId) -> bool:
        """Whether the engine makes an event of such a call at all."""
        ...

    def is_same_event(self, event: Event, done: EventId) -> bool:
        """Whether the event of the tree is the recorded one: by default the same call with the same last name."""
        ...

    def lane(self, rank: int, job: Job) -> int | None:
        """Number of the simulated rank that stands for this rank; None: the branches of all ranks are taken."""
        ...


Believe = Callable[[Mapping[str, str], Job], Belief]


def is_same_call(event: Event, done: EventId) -> bool:
    """Same file, line and column of the call, and same last part of the path (`step` of any optimizer)."""
    node, path = event.node, getattr(event.module, "path", "")
    if (getattr(node, "lineno", -1), getattr(node, "col_offset", -1)) != (done.line, done.col):
        return False
    here = not path or path == done.path or path.endswith("/" + done.path)
    return here and event.api.rpartition(".")[2] == done.api.rpartition(".")[2]


@dataclass
class Ignorance:
    """The belief of an engine that knows nothing: never wrong, and worth nothing."""

    tree: Seq = field(default_factory=Seq)
    lost: bool = True
    same: bool = False
    unasked: bool = False
    vague: bool = True

    def __post_init__(self) -> None:
        import ast

        self.tree.items.append(Lost("nothing is known", ast.Pass()))

    def may_be(self, value: object, rank: int, world: int) -> bool:
        return True

    def value(self, site: Site) -> Claim | None:
        return self

    def counts(self, event: Event) -> bool:
        return True

    def in_alphabet(self, event: EventId) -> bool:
        return True

    def is_same_event(self, event: Event, done: EventId) -> bool:
        return is_same_call(event, done)

    def lane(self, rank: int, job: Job) -> int | None:
        return None


def believe(files: Mapping[str, str], job: Job) -> Belief:
    """The engine under test."""
    from .beliefs import believed

    return believed(files, job)
