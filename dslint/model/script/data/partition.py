"""Sequences cut into one part a rank, and whether the parts may have different lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact, unknown
from dslint.model.script.bindings import Binding
from dslint.model.script.constants import Constants
from dslint.model.script.data.shares import Shares
from dslint.model.script.dotted import keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.tree import Tree

_MAX_STEPS = 6
# Wrappers that hand on their first argument item by item.
_TRANSPARENT = frozenset({"enumerate", "tqdm", "trange", "list", "tuple", "iter", "zip", "track", "progress_bar"})
_SPLITS = frozenset({"array_split", "chunk", "tensor_split"})
# ``chunk`` may make fewer parts than it is asked for.
_EXACT_SPLITS = _SPLITS - {"chunk"}
# ``batch_size // world_size`` and ``rank % world_size`` say nothing about the number of items.
_SHARES = re.compile(r"batch|rank|step|epoch|seed|worker")
# ``ceil(n / world)`` and ``pad...`` mean that somebody thought of the rest.
_ROUNDING = frozenset({"ceil", "lcm", "gcd"})
# Padding of tokens and pixels, not of the list of items.
_TOKEN_PADS = frozenset({"pad_sequence", "pad_packed_sequence", "pack_padded_sequence", "zeropad2d"})
_TOKEN_PADDERS = re.compile(r"token|process|^f$|^functional$|^nn$|^np$|collat")


@dataclass(frozen=True, slots=True)
class Partition:
    """A cut: ``node`` is the expression that makes it, ``total`` the number of items when known.

    ``rounding`` is the part of the cut itself that rounds up: it evens nothing out.
    """

    node: cst.CSTNode
    total: Fact[int]
    rounding: cst.CSTNode | None = None


class Partitions:
    """Finds loops over the part of one rank."""

    def __init__(self, tree: Tree, names: Names, guards: Guards, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._ranks = guards.rank_values
        self._constants = constants
        self._shares = Shares(names, guards.rank_values)

    def of(self, iterable: cst.BaseExpression, steps: int = 0) -> Partition | None:
        """The cut behind the iterable of a loop."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(iterable, cst.Name):
            return self._bound(iterable, steps)
        if isinstance(iterable, cst.Attribute):  # ``self.mine``, assigned once
            value = self._names.single_value(iterable)
            return self.of(value, steps + 1) if value is not None else None
        if isinstance(iterable, cst.Subscript):
            return self._subscript(iterable)
        if isinstance(iterable, cst.Call):
            return self._call(iterable, steps)
        if isinstance(iterable, cst.ListComp | cst.GeneratorExp):
            tests = (self.turn(part.test) for part in iterable.for_in.ifs)
            return next((t[0] for t in tests if t is not None and t[1]), None) or self.of(
                iterable.for_in.iter, steps + 1
            )
        return None

    def is_evened(self, loop: cst.CSTNode, partition: Partition) -> bool:
        """The code around the loop pads, truncates or checks: it computes with the remainder of the world size."""
        scopes: set[cst.CSTNode | None] = {self._tree.function(loop) or self._tree.module}
        scopes.add(self._tree.function(partition.node))
        owner = self._tree.enclosing(partition.node, cst.ClassDef)
        if owner is not None and not self._tree.contains(owner, loop):
            scopes.add(owner)  # a sampler or data set of this file may pad where it is made
        own = set(map(id, self._tree.descendants(partition.rounding))) if partition.rounding is not None else set()
        nodes = (n for scope in scopes if scope is not None for n in self._tree.descendants(scope))
        return any(id(node) not in own and self._evens(node) for node in nodes)

    def _evens(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo | cst.FloorDivide):
            counts = self._ranks.is_world_size(node.right) and not _SHARES.search(_innermost(node.left))
            return counts and not self._is_turn(self._tree.parent(node))
        if isinstance(node, cst.AugAssign):
            return isinstance(node.operator, cst.ModuloAssign)
        return isinstance(node, cst.Call) and _evens(node)

    def turn(self, test: cst.BaseExpression) -> tuple[Partition, bool] | None:
        """``i % world_size == rank``: a cut, and whether the test holds for the rank's own items."""
        if not isinstance(test, cst.Comparison) or not self._is_turn(test):
            return None
        operator = test.comparisons[0].operator
        if not isinstance(operator, cst.Equal | cst.NotEqual):
            return None
        return Partition(test, unknown("the items are counted one by one")), isinstance(operator, cst.Equal)

    def stepping(self, loop: cst.While) -> Partition | None:
        """``i = rank; while i < n: ...; i += world_size``."""
        test = loop.test
        if not isinstance(test, cst.Comparison) or not isinstance(test.left, cst.Name):
            return None
        found = self._names.bindings(test.left.value, test.left)
        starts = any(b.kind == "assign" and b.value is not None and self._ranks.is_rank(b.value) for b in found)
        steps = any(
            isinstance(n, cst.AugAssign)
            and isinstance(n.operator, cst.AddAssign)
            and last_name(n.target) == test.left.value
            and self._ranks.is_world_size(n.value)
            for n in self._tree.own_nodes(loop.body)
        )
        return (
            Partition(test, _integer(self._constants.value(test.comparisons[0].comparator)))
            if starts and steps
            else None
        )

    def _is_turn(self, test: cst.CSTNode | None) -> bool:
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return False
        left, right = test.left, test.comparisons[0].comparator
        if not (isinstance(left, cst.BinaryOperation) and isinstance(left.operator, cst.Modulo)):
            left, right = right, left
        if not (isinstance(left, cst.BinaryOperation) and isinstance(left.operator, cst.Modulo)):
            return False
        return (
            self._ranks.is_world_size(left.right) and self._ranks.is_rank(right) and not self._ranks.is_rank(left.left)
        )

    def _bound(self, name: cst.Name, steps: int) -> Partition | None:
        found = self._names.bindings(name.value, name)
        if len(found) == 1 and isinstance(found[0].node, cst.Param):
            given = self._names.callers.passed(found[0].node)
            return self.of(given[0], steps + 1) if len(given) == 1 and given[0] is not None else None
        if len(found) > 1:
            found = self._replacement(found, name)
        if len(found) != 1 or found[0].value is None:
            return None
        if found[0].kind == "with":
            return self._split_between_processes(found[0].value)
        return self.of(found[0].value, steps + 1) if found[0].kind == "assign" else None

    def _replacement(self, found: list[Binding], name: cst.Name) -> list[Binding]:
        """``data = data[rank::world_size]``: the last assignment before the use, when nothing decides about it."""
        before = [b for b in found if self._tree.position(b.node) < self._tree.position(name)]
        if not before or before[-1].kind != "assign" or self._tree.function(before[-1].node) is None:
            return []
        block = self._tree.enclosing(before[-1].node, cst.IndentedBlock)
        return before[-1:] if block is not None and self._tree.contains(block, name) else []

    def _subscript(self, node: cst.Subscript) -> Partition | None:
        """``data[rank::world_size]`` and ``np.array_split(data, world_size)[rank]``."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Slice):
            if index.step is None and index.lower is not None and index.upper is not None:
                rounding = self._shares.rounded_up(index.lower)
                return Partition(node, self._length(node.value), rounding) if rounding is not None else None
            if index.lower is None or index.step is None or index.upper is not None:
                return None
            dealt = self._ranks.is_rank(index.lower) and self._ranks.is_world_size(index.step)
            return Partition(node, self._length(node.value)) if dealt and not self._is_whole(node.value) else None
        whole = self._names.single_value(node.value) or node.value
        if isinstance(index, cst.Index) and self._ranks.is_rank(index.value) and isinstance(whole, cst.ListComp):
            part = whole.elt  # ``[data[i::world_size] for i in range(world_size)][rank]``
            step = part.slice[0].slice if isinstance(part, cst.Subscript) and len(part.slice) == 1 else None
            dealt = isinstance(step, cst.Slice) and step.step is not None and self._ranks.is_world_size(step.step)
            return Partition(node, unknown("the parts are made one by one")) if dealt else None
        if isinstance(index, cst.Index) and self._ranks.is_rank(index.value) and isinstance(whole, cst.Call):
            call = whole
            if self._names.called(call) in _SPLITS and any(self._ranks.is_world_size(a.value) for a in call.args):
                items = call.args[0].value
                if isinstance(call.func, cst.Attribute) and self._ranks.is_world_size(items):
                    items = call.func.value  # ``data.chunk(world_size)``
                return Partition(node, self._length(items))
        return None

    def _is_whole(self, items: cst.BaseExpression) -> bool:
        """``seeds.tensor_split(rounds * world_size)``: as many parts as some multiple of the world size."""
        call = self._names.single_value(items) or items
        if not isinstance(call, cst.Call) or self._names.called(call) not in _EXACT_SPLITS:
            return False
        numbers = (self._names.single_value(a.value) or a.value for a in call.args)
        return any(
            isinstance(n, cst.BinaryOperation)
            and isinstance(n.operator, cst.Multiply)
            and any(map(self._ranks.is_world_size, (n.left, n.right)))
            for n in numbers
        )

    def _call(self, call: cst.Call, steps: int) -> Partition | None:
        name = self._names.called(call)
        args = [a.value for a in call.args if a.keyword is None and not a.star]
        if name == "range":
            return self._range(args, call, steps)
        if name == "islice" and len(args) == 4:
            if self._ranks.is_rank(args[1]) and self._ranks.is_world_size(args[3]):
                return Partition(call, self._length(args[0]))
            return None
        keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        if name in ("shard", "split_dataset_by_node"):
            parts = args[-2:] if len(args) > 1 else []
            return self._sharded(call, [*parts, *keywords.values()])
        if name in ("Subset", "select") and args:
            return self.of(args[-1], steps + 1)
        if name == "DataLoader":
            source = keywords.get("sampler", keywords.get("batch_sampler"))
            source = source if source is not None else (args[0] if args else keywords.get("dataset"))
            return self.of(source, steps + 1) if source is not None else None
        if name == "split_between_processes":
            return self._split_between_processes(call)
        owner = self._names.local_class(name, call) if isinstance(call.func, cst.Name) else None
        if owner is not None:
            return self._iterated(owner, steps)
        return self.of(args[0], steps + 1) if name in _TRANSPARENT and args else None

    def _iterated(self, owner: cst.ClassDef, steps: int) -> Partition | None:
        """What ``__iter__`` of a sampler or data set of this file runs over."""
        members = (m for m in owner.body.body if isinstance(m, cst.FunctionDef))
        method = next((m for m in members if m.name.value == "__iter__"), None)
        for node in self._tree.own_nodes(method.body) if method is not None else ():
            found = None
            if isinstance(node, cst.Return) and node.value is not None:
                found = self.of(node.value, steps + 1)
            elif isinstance(node, cst.Yield) and isinstance(node.value, cst.From):
                found = self.of(node.value.item, steps + 1)
            elif isinstance(node, cst.For) and self._yields(node.body):
                found = self.of(node.iter, steps + 1)
            elif isinstance(node, cst.If) and self._yields(node.body):
                turn = self.turn(node.test)
                found = turn[0] if turn is not None and turn[1] else None
            if found is not None:
                return found
        return None

    def _yields(self, body: cst.CSTNode) -> bool:
        return any(isinstance(n, cst.Yield) for n in self._tree.own_nodes(body))

    def _sharded(self, call: cst.Call, values: list[cst.BaseExpression]) -> Partition | None:
        """``dataset.shard(world_size, rank)`` and ``split_dataset_by_node(dataset, rank, world_size)``."""
        cut = any(map(self._ranks.is_rank, values)) and any(map(self._ranks.is_world_size, values))
        return Partition(call, unknown("the length of a data set")) if cut else None

    def _range(self, args: list[cst.BaseExpression], call: cst.Call, steps: int) -> Partition | None:
        """``range(rank, n, world_size)``, or ``range(0, len(mine), batch)`` over a part cut before."""
        if len(args) == 3 and self._ranks.is_rank(args[0]) and self._ranks.is_world_size(args[2]):
            return Partition(call, _integer(self._constants.likely(args[1])))
        stop = args[0] if len(args) == 1 else (args[1] if len(args) > 1 else None)
        if isinstance(stop, cst.Call) and self._names.called(stop) == "len" and len(stop.args) == 1:
            return self.of(stop.args[0].value, steps + 1)
        return None

    def _split_between_processes(self, value: cst.BaseExpression) -> Partition | None:
        if not isinstance(value, cst.Call) or self._names.called(value) != "split_between_processes" or not value.args:
            return None
        padding = keyword(value, "apply_padding")
        if padding is None and len(value.args) > 1 and value.args[1].keyword is None:
            padding = value.args[1].value
        if padding is not None and not (isinstance(padding, cst.Name) and padding.value == "False"):
            return None
        return Partition(value, self._length(value.args[0].value))

    def _length(self, node: cst.BaseExpression) -> Fact[int]:
        """How many items a literal (or a name for one) has."""
        fact = self._constants.value(node)
        return fact.map(lambda v: len(v) if isinstance(v, list | tuple | str | dict) else -1)


def _evens(call: cst.Call) -> bool:
    """The call rounds a count, fills up a list, or lets ranks end early."""
    name = last_name(call.func).lower()
    if last_name(call.func) == "Join":  # ``with Join([model]):`` of torch.distributed.algorithms.join
        return True
    if name in _ROUNDING or name == "divmod":
        return True
    if name == "join":  # of a DDP model; threads aside, the others join texts and paths
        return not any(a.keyword is None for a in call.args)
    owner = last_name(call.func.value).lower() if isinstance(call.func, cst.Attribute) else ""
    return "pad" in name and name not in _TOKEN_PADS and not _TOKEN_PADDERS.search(owner)


def _innermost(node: cst.BaseExpression) -> str:
    """The name that an operand is about."""
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    return last_name(node).lower()


def _integer(fact: Fact[object]) -> Fact[int]:
    return fact.map(lambda v: v if isinstance(v, int) else -1)
