"""What the functions of a file do to the other ranks: their collectives, and whether guarded ones are paired."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.across.imported import Imported
from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective, Collectives
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guard, Guards
from dslint.model.script.ranks.rankset import Ranks
from dslint.model.script.tree import Tree

_MAX_DEPTH = 4
# A call in the other branch that may well be the counterpart, although its code is not in this file.
_MAYBE_COLLECTIVE = re.compile(
    r"barrier|sync|wait|recv|receive|broadcast|bcast|gather|reduce|scatter|all_to_all|save_ch"
)


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
        """The operations for pairing."""
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
        self._collectives = Collectives(names, objects)
        self._is_zero3 = zero3.is_known and bool(zero3.value)
        self._own: dict[int, tuple[Collective, ...]] = {}
        self._events: dict[int, list[Event]] = {}
        self._excess: set[tuple[str, int]] | None = None

    def collective(self, call: cst.Call) -> Collective | None:
        """The collective that a call certainly is: those of stage 3 only count when the stage is known."""
        found = self._collectives.of(call)
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

    def events(self, scope: cst.CSTNode) -> list[Event]:
        """The events of a function or of the module level, in source order."""
        found = self._events.get(id(scope))
        if found is None:
            calls = (n for n in self._tree.own_nodes(scope) if isinstance(n, cst.Call))
            found = self._events[id(scope)] = [e for e in map(self.event, calls) if e is not None]
        return found

    def behind(self, guard: Guard, call: cst.Call) -> list[Event]:
        """The events behind the same guard as a call, for the same ranks, itself included."""
        scope = self._tree.function(call) or self._tree.module
        return [
            e for e in self.events(scope) if e.guard and e.guard.owner is guard.owner and e.guard.ranks is guard.ranks
        ]

    def is_paired(self, event: Event) -> bool:
        """The other ranks run the same operations as often on their own path."""
        scope = self._tree.function(event.call) or self._tree.module
        if event.guard is None or self._other_path_may_match(event.guard):
            return True
        return all(self._is_matched(key, event, scope) for key in event.keys)

    def calls_by_side(self, event: Event) -> tuple[int, int]:
        """How often the ranks behind the event's guard run its first operation, and how often the others do."""
        scope = self._tree.function(event.call) or self._tree.module
        balance, key = self._count(scope), event.collectives[0].key
        mine, other = _sides(event.guard)
        return balance[key, mine], balance[key, other]

    def _is_matched(self, key: str, event: Event, scope: cst.CSTNode) -> bool:
        balance = self._count(scope)
        mine, other = _sides(event.guard)
        if mine is Ranks.SOME or balance[key, Ranks.SOME]:
            # ``rank == 0``, ``rank == 1``, else: several branches with the operation may well add up.
            return sum(balance[key, ranks] for ranks in Ranks) > balance[key, mine] or balance[key, Ranks.SOME] > 1
        if balance[key, mine] <= balance[key, other]:
            return True
        same = [e.call for e in self.events(scope) if e.guard is not None and e.guard.ranks is mine and key in e.keys]
        if same.index(event.call) < balance[key, other]:
            return True
        # The halves of a begin/end pair or of a context manager stand in two functions.
        return self._has_other_half(key, balance[key, Ranks.MAIN] - balance[key, Ranks.OTHERS])

    def _count(self, scope: cst.CSTNode) -> Counter[tuple[str, Ranks]]:
        return Counter((key, e.guard.ranks) for e in self.events(scope) if e.guard is not None for key in e.keys)

    def _has_other_half(self, key: str, excess: int) -> bool:
        """Some function of the file runs the operation as much more often on the opposite ranks."""
        if self._excess is None:
            self._excess = set()
            for node in self._tree.some(cst.FunctionDef, cst.Module):
                count = self._count(node)
                self._excess |= {(k, count[k, Ranks.MAIN] - count[k, Ranks.OTHERS]) for k, _ in count}
        return (key, -excess) in self._excess

    def _other_path_may_match(self, guard: Guard) -> bool:
        """The branch of the other ranks calls something outside of this file that sounds like the counterpart."""
        return any(
            isinstance(node, cst.Call)
            and _MAYBE_COLLECTIVE.search(last_name(node.func)) is not None
            and self._names.local_function(node) is None
            and self.event(node) is None
            for node in self._other_branch(guard)
        )

    def _other_branch(self, guard: Guard) -> list[cst.CSTNode]:
        owner = guard.owner
        if not isinstance(owner, cst.If):
            return []
        arms = [arm for arm in (owner.body, owner.orelse) if arm is not None]
        yes, no = self._guards.branches(owner.test)
        return [
            n
            for arm, ranks in zip(arms, (yes, no), strict=False)
            if ranks is not guard.ranks
            for n in self._tree.descendants(arm)
        ]


def _sides(guard: Guard | None) -> tuple[Ranks, Ranks]:
    """The ranks behind a guard, and those on the other side."""
    ranks = guard.ranks if guard is not None else Ranks.ALL
    return ranks, {Ranks.MAIN: Ranks.OTHERS, Ranks.OTHERS: Ranks.MAIN}.get(ranks, Ranks.ALL)
