"""Sequences cut into one part a rank, and whether the parts may have different lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.constants import Constants
from dslint.model.script.guards import Guards
from dslint.model.script.names import Names, last_name
from dslint.model.script.tree import Tree

_MAX_STEPS = 4
# Wrappers that hand on their first argument item by item.
_TRANSPARENT = frozenset({"enumerate", "tqdm", "trange", "list", "tuple", "iter", "zip", "track", "progress_bar"})
_SPLITS = frozenset({"array_split", "chunk", "tensor_split"})
# ``batch_size // world_size`` and ``rank % world_size`` say nothing about the number of items.
_SHARES = re.compile(r"batch|rank|step|epoch|seed|worker")
# ``ceil(n / world)`` and ``pad...`` mean that somebody thought of the rest.
_ROUNDING = frozenset({"ceil", "lcm", "gcd"})


@dataclass(frozen=True, slots=True)
class Partition:
    """A cut: ``node`` is the expression that makes it, ``total`` the number of items when known."""

    node: cst.CSTNode
    total: Fact[int]


class Partitions:
    """Finds loops over the part of one rank."""

    def __init__(self, tree: Tree, names: Names, guards: Guards, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._ranks = guards.ranks_of
        self._constants = constants

    def of(self, iterable: cst.BaseExpression, steps: int = 0) -> Partition | None:
        """The cut behind the iterable of a loop."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(iterable, cst.Name):
            return self._bound(iterable, steps)
        if isinstance(iterable, cst.Subscript):
            return self._subscript(iterable)
        if isinstance(iterable, cst.Call):
            return self._call(iterable, steps)
        return None

    def is_evened(self, loop: cst.CSTNode, partition: Partition) -> bool:
        """The code around the loop pads, truncates or checks: it computes with the remainder of the world size."""
        for scope in {self._tree.function(loop) or self._tree.module, self._tree.function(partition.node)}:
            for node in self._tree.descendants(scope) if scope is not None else ():
                if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo | cst.FloorDivide):
                    if self._ranks.is_world_size(node.right) and not _SHARES.search(_innermost(node.left)):
                        return True
                elif isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.ModuloAssign):
                    return True
                elif isinstance(node, cst.Call):
                    name = last_name(node.func).lower()
                    if name in _ROUNDING or "pad" in name or name in ("join", "divmod"):
                        return True
        return False

    def _bound(self, name: cst.Name, steps: int) -> Partition | None:
        found = self._names.bindings(name.value, name)
        if len(found) != 1 or found[0].value is None:
            return None
        if found[0].kind == "with":
            return self._split_between_processes(found[0].value)
        return self.of(found[0].value, steps + 1) if found[0].kind == "assign" else None

    def _subscript(self, node: cst.Subscript) -> Partition | None:
        """``data[rank::world_size]`` and ``np.array_split(data, world_size)[rank]``."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Slice):
            if index.lower is None or index.step is None or index.upper is not None:
                return None
            if self._ranks.is_rank(index.lower) and self._ranks.is_world_size(index.step):
                return Partition(node, self._length(node.value))
            return None
        if isinstance(index, cst.Index) and self._ranks.is_rank(index.value) and isinstance(node.value, cst.Call):
            call = node.value
            if last_name(call.func) in _SPLITS and any(self._ranks.is_world_size(a.value) for a in call.args):
                return Partition(node, self._length(call.args[0].value))
        return None

    def _call(self, call: cst.Call, steps: int) -> Partition | None:
        name = last_name(call.func)
        args = [a.value for a in call.args if a.keyword is None and not a.star]
        if name == "range":
            return self._range(args, call, steps)
        if name == "islice" and len(args) == 4:
            if self._ranks.is_rank(args[1]) and self._ranks.is_world_size(args[3]):
                return Partition(call, self._length(args[0]))
            return None
        return self.of(args[0], steps + 1) if name in _TRANSPARENT and args else None

    def _range(self, args: list[cst.BaseExpression], call: cst.Call, steps: int) -> Partition | None:
        """``range(rank, n, world_size)``, or ``range(0, len(mine), batch)`` over a part cut before."""
        if len(args) == 3 and self._ranks.is_rank(args[0]) and self._ranks.is_world_size(args[2]):
            return Partition(call, _integer(self._constants.value(args[1])))
        stop = args[0] if len(args) == 1 else (args[1] if len(args) > 1 else None)
        if isinstance(stop, cst.Call) and last_name(stop.func) == "len" and len(stop.args) == 1:
            return self.of(stop.args[0].value, steps + 1)
        return None

    def _split_between_processes(self, value: cst.BaseExpression) -> Partition | None:
        if not isinstance(value, cst.Call) or last_name(value.func) != "split_between_processes" or not value.args:
            return None
        padding = next((a.value for a in value.args if a.keyword and a.keyword.value == "apply_padding"), None)
        if padding is None and len(value.args) > 1 and value.args[1].keyword is None:
            padding = value.args[1].value
        if padding is not None and not (isinstance(padding, cst.Name) and padding.value == "False"):
            return None
        return Partition(value, self._length(value.args[0].value))

    def _length(self, node: cst.BaseExpression) -> Fact[int]:
        """How many items a literal (or a name for one) has."""
        fact = self._constants.value(node)
        return fact.map(lambda v: len(v) if isinstance(v, list | tuple | str | dict) else -1)


def _innermost(node: cst.BaseExpression) -> str:
    """The name that an operand is about."""
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    return last_name(node).lower()


def _integer(fact: Fact[object]) -> Fact[int]:
    return fact.map(lambda v: v if isinstance(v, int) else -1)
