"""Calls that one side makes alone and that other code makes up for: what looks like a divergence and is none."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.traces.compare import Mismatch, compare
from dslint.model.script.traces.elements import Repeat, Scope, Trace, operations, parts
from dslint.model.script.traces.parting import Parting
from dslint.model.script.traces.path import may_leave
from dslint.model.script.traces.record import Recorder
from dslint.model.script.traces.variance import Variances
from dslint.model.script.tree import Tree

# A function that hands on what it is given is one of these.
_MAX_CALLERS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """An operation that rank 0 and another rank do not both run in a function; ``times``: in how many places each."""

    scope: cst.CSTNode
    rank: int
    mismatch: Mismatch
    times: tuple[int, int]


class Evened:
    """Answers for one module."""

    def __init__(self, tree: Tree, parting: Parting, variances: Variances) -> None:
        self._tree = tree
        self._parting = parting
        self._variances = variances

    def by_others(self, one: Found, sides: dict[int, Recorder]) -> bool:
        """Each caller makes up for it, or another function runs the other half: a begin/end pair, a context manager."""
        key, others = one.mismatch.op.key, sides[one.rank]
        if self._may_meet(key, one.scope, sides):
            return True

        def excess(scope: cst.CSTNode) -> int:
            mine, theirs = (sum(o.key == key for o in operations(s.scope(scope))) for s in (sides[0], others))
            return mine - theirs

        here = excess(one.scope)
        if not here:
            return False  # left out by those that leave

        def differs(caller: cst.CSTNode, steps: int = 0) -> bool:
            if not excess(caller) or self._may_meet(key, caller, sides):
                return False
            base, other = sides[0].scope(caller), others.scope(caller)
            # Counts say nothing where one of the two leaves a loop before its end.
            leaves = _leaves_in_loop(base) or _leaves_in_loop(other)
            if leaves and not any(m.op.key == key for m in compare(base, other)):
                return False
            above = self._parting.callers(caller) if steps < _MAX_CALLERS else []
            return not above or any(differs(c, steps + 1) for c in above)

        callers = self._parting.callers(one.scope)
        if callers:
            return not any(map(differs, callers))
        return any(excess(scope) == -here for scope in self._parting.scopes())

    def is_settled_beside(self, leaving: cst.CSTNode, call: cst.Call) -> bool:
        """The arm in which some ranks leave also sets what is asked before the call, for those that stay."""
        asked = {
            n.value
            for outer in self._tree.parents(call)
            if type(outer) is cst.If and not self._tree.contains(outer, leaving)
            for n in self._tree.descendants(outer.test)
            if type(n) is cst.Name
        }
        if not asked:
            return False
        return any(
            type(n) is cst.AssignTarget and type(n.target) is cst.Name and n.target.value in asked
            for arm in self._tree.parents(leaving)
            if type(arm) is cst.If and not self._tree.contains(arm, call)
            for n in self._tree.own_nodes(arm.body)
        )

    def _may_meet(self, key: str, caller: cst.CSTNode, sides: dict[int, Recorder]) -> bool:
        """Behind a value that only some ranks set, the caller runs the operation: it may be the other half."""
        calls = (o.call for s in sides.values() for o in operations(s.scope(caller)) if o.key == key)
        owners = (n for call in calls for n in self._tree.parents(call) if type(n) is cst.If)
        return any((found := self._variances.test(owner.test)) is not None and found.is_lone for owner in owners)


def _leaves_in_loop(trace: Trace) -> bool:
    """The function of the trace, not only those that it calls, may leave in the middle of a loop."""
    return any(
        (isinstance(e, Repeat) and may_leave(e)) or (type(e) is not Scope and any(map(_leaves_in_loop, parts(e))))
        for e in trace
    )
