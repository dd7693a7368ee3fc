"""What the functions of a file do to the other ranks: the collectives that they run without a condition."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.across.imported import Imported
from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective, Collectives
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guard, Guards
from dslint.model.script.tree import Tree

_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Event:
    """A call that waits for all ranks: a collective itself, or a helper (``through``) that runs some.

    ``foreign`` when the helper stands in another file.
    """

    call: cst.Call
    collectives: tuple[Collective, ...]
    guard: Guard | None
    through: cst.FunctionDef | None = None
    foreign: Foreign | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The names of the operations."""
        return frozenset(c.key for c in self.collectives)


class Summaries:
    """Collectives by function, with helpers looked through: those of the file, and imported ones of the project."""

    def __init__(
        self,
        tree: Tree,
        names: Names,
        guards: Guards,
        objects: Objects,
        *,
        zero3: Fact[bool],
        project: Imported | None = None,
    ) -> None:
        self._project = project
        self._tree = tree
        self._names = names
        self._guards = guards
        self.collectives = Collectives(tree, names, objects)
        self._is_zero3 = zero3.is_known and bool(zero3.value)
        self._own: dict[int, tuple[Collective, ...]] = {}

    def collective(self, call: cst.Call) -> Collective | None:
        """The collective that a call certainly is: those of stage 3 only count when the stage is known."""
        found = self.collectives.of(call)
        if found is None or (found.needs_stage3 and not self._is_zero3):
            return None
        return found

    def event(self, call: cst.Call) -> Event | None:
        """What a call does to the other ranks, or ``None``."""
        direct = self.collective(call)
        if direct is not None:
            return Event(call, (direct,), self._guards.guard(call))
        helper = self._names.local_function(call)
        if helper is None:
            foreign = self._imported(call)
            inside = self._inside(foreign, 0)
            return (
                Event(call, inside, self._guards.guard(call), foreign.function, foreign) if foreign and inside else None
            )
        inside = self.unguarded(helper)
        return Event(call, inside, self._guards.guard(call), helper) if inside else None

    def _imported(self, call: cst.Call) -> Foreign | None:
        return self._project.function(call, waiting=True) if self._project is not None else None

    def _inside(self, foreign: Foreign | None, depth: int) -> tuple[Collective, ...]:
        """What a function of another file runs, by the summary of that file."""
        return foreign.context.summaries.unguarded(foreign.function, depth) if foreign is not None else ()

    def unguarded(self, function: cst.FunctionDef, depth: int = 0) -> tuple[Collective, ...]:
        """The collectives that a function runs on every rank that calls it, whatever its arguments."""
        found = self._own.get(id(function))
        if found is not None or depth > _MAX_DEPTH:
            return found or ()
        self._own[id(function)] = ()  # a recursive helper adds nothing to itself
        result: list[Collective] = []
        for node in self._tree.own_nodes(function):
            if not isinstance(node, cst.Call) or not self._tree.contains(function.body, node):
                continue
            direct = self.collective(node)
            inside = (direct,) if direct else self._through(node, depth + 1)
            if inside and self._guards.guard(node) is None and not self._guards.is_conditional(node):
                result += inside
        self._own[id(function)] = tuple(result)
        return self._own[id(function)]

    def _through(self, call: cst.Call, depth: int) -> tuple[Collective, ...]:
        helper = self._names.local_function(call)
        return self.unguarded(helper, depth) if helper is not None else self._inside(self._imported(call), depth)
