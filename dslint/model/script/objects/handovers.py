"""Objects that were handed to ``deepspeed.initialize``, DDP or FSDP: from then on they are part of something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import dotted, is_none, is_self
from dslint.model.script.names import Names
from dslint.model.script.objects.conditions import Conditions
from dslint.model.script.objects.objectkinds import HANDED, INITIALIZE, SHARD_IN_PLACE, Thing, class_kind
from dslint.model.script.objects.reaching import Reaching
from dslint.model.script.parameters import bound
from dslint.model.script.tree import Tree

_IN_PLACE = frozenset(name.rpartition(".")[2] for name in SHARD_IN_PLACE)


@dataclass(frozen=True, slots=True)
class HandOver:
    """A variable that a call takes, and what the object is called afterwards.

    ``by``: the call of the library that takes it, which may stand in a function of the file that ``call`` runs.
    """

    call: cst.Call
    given: cst.BaseExpression
    kind: str
    by: cst.Call


class HandOvers:
    """What happened to a variable before a node."""

    def __init__(self, tree: Tree, names: Names, conditions: Conditions, reaching: Reaching) -> None:
        self._tree = tree
        self._names = names
        self._conditions = conditions
        self._reaching = reaching
        self._found: dict[str, list[HandOver]] | None = None

    def after(self, node: cst.CSTNode, things: frozenset[Thing], reached: list[Binding]) -> frozenset[Thing]:
        """What the things behind a variable are at ``node``, after the calls that took them."""
        for taken in self._of(dotted(node) or ""):
            certain = self._happened(taken, node, reached)
            if certain is not False:
                later = frozenset(replace(t, kind=taken.kind, taken=taken.by) if _is_open(t) else t for t in things)
                things = later if certain else things | later
        return things

    def _of(self, text: str) -> list[HandOver]:
        if self._found is None:
            self._found = {}
            for node in self._tree.every(cst.Call):
                handed = [(given, kind, node) for given, kind in self._handed(node)]
                for given, kind, by in handed or self._shards_inside(node):
                    if dotted(given) in self._targets(node):
                        continue  # ``model = DDP(model)``: the variable holds what came of it
                    self._found.setdefault(dotted(given) or "", []).append(HandOver(node, given, kind, by))
            self._found.pop("", None)
        return self._found.get(text, [])

    def _handed(self, call: cst.Call) -> list[tuple[cst.BaseExpression, str]]:
        name = self._names.qualified(call.func)
        if name is None:
            return []
        taker = "engine" if name == INITIALIZE else "sharded" if name in SHARD_IN_PLACE else class_kind(name)
        parameters = HANDED.get(taker, {})
        found = []
        for index, arg in enumerate(call.args):
            if arg.star:
                break
            for parameter, (position, kind) in parameters.items():
                if (arg.keyword.value == parameter) if arg.keyword is not None else index == position:
                    found.append((arg.value, kind))
        return found

    def _shards_inside(self, call: cst.Call) -> Iterator[tuple[cst.BaseExpression, str, cst.Call]]:
        """``parallelize(model)``, a function of the file that ends in ``fully_shard(model)`` whatever it is given."""
        if self._names.words.isdisjoint(_IN_PLACE):
            return
        function = self._names.local_function(call)
        passed = bound(self._tree, call, function).passed if function is not None else {}
        for statement in function.body.body if function is not None else ():
            inner = _expression(statement)
            for taken, kind in self._handed(inner) if inner is not None else ():
                given = passed.get(taken.value) if isinstance(taken, cst.Name) else None
                if inner is not None and given is not None and self._names.qualified(inner.func) in SHARD_IN_PLACE:
                    yield given, kind, inner

    def _targets(self, call: cst.Call) -> set[str]:
        """The variables to which a call, or a part of its result, is assigned."""
        statement = self._tree.enclosing(call, cst.Assign, cst.SimpleStatementLine)
        targets = [t.target for t in statement.targets] if isinstance(statement, cst.Assign) else []
        parts = [e.value for t in targets if isinstance(t, cst.Tuple | cst.List) for e in t.elements]
        return {dotted(t) or "" for t in (*targets, *parts)}

    def _happened(self, taken: HandOver, node: cst.CSTNode, reached: list[Binding]) -> bool | None:
        """Whether the call took the very object that the variable holds at a node; ``None``: perhaps."""
        if self._tree.contains(taken.call, node) or self._conditions.excludes(taken.call, node):
            return False
        mine = self._variable(node)
        same = self._tree.function(taken.call) is self._tree.function(node)
        if mine != self._variable(taken.given) or not (mine or same):
            return False
        if same and self._tree.position(taken.call) > self._tree.position(node):
            return False
        there, here = ({b for b in bound if not is_none(b.value)} for bound in (self._reached(taken.given), reached))
        if there == here:
            return True if self._conditions.implies(node, taken.call) else None
        return None if there & here else False

    def _reached(self, node: cst.BaseExpression) -> list[Binding]:
        found = self._variable(node)
        if isinstance(node, cst.Name):
            return self._reaching.of_bindings(found, node)
        here = [b for b in found if self._tree.function(b.node) is self._tree.function(node)]
        reached, certain = self._reaching.before(here, node)
        return reached if certain else [*reached, *(b for b in found if b not in here)]

    def _variable(self, node: cst.CSTNode) -> list[Binding]:
        if isinstance(node, cst.Name):
            return self._names.bindings(node.value, node)
        if isinstance(node, cst.Attribute):
            if is_self(node.value):
                owner = self._tree.enclosing(node, cst.ClassDef)
                return self._names.class_attribute(owner, node.attr.value) if isinstance(owner, cst.ClassDef) else []
            return self._names.member_bindings(node)
        return []


def _expression(statement: cst.CSTNode) -> cst.Call | None:
    """The call that a statement consists of."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and statement.body else None
    return small.value if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) else None


def _is_open(thing: Thing) -> bool:
    """A thing that can still be handed over: nothing that a library made of it already."""
    return thing.kind in ("", "model", "optimizer", "scheduler", "engine_module")
