"""A cheap look for work that is dealt out by rank: can the rule about uneven loops fire on this file at all?

It may say yes too often, never no wrongly for the cuts that the full analysis knows (``data/partition.py``): each of
them is made with the world size, and nearly each with the rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from dslint.model.script.marked import Waiting, Worlds, name_of, ranks_of
from dslint.model.script.quick import Flat, call_name, flat

_REPEATING = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SPLITS = frozenset({"array_split", "chunk", "tensor_split"})
# Calls that take the rank and the world size as any of their arguments.
_DEALING = frozenset({"shard", "split_dataset_by_node"})


def has_strided_work(tree: ast.Module, imported: frozenset[str] = frozenset()) -> bool:
    """Some sequence is cut into one part a rank, and a loop waits for the others, or trains, in each turn."""
    if not cuts_by_rank(tree):
        return False
    nodes = flat(tree)
    waiting = Waiting(nodes, imported)
    waiting.add(nodes.place(call) for call in nodes.nodes(ast.Call) if call_name(call) == "backward")
    return any(map(waiting.inside, nodes.places(*_REPEATING)))


@lru_cache(maxsize=1)
def cuts_by_rank(tree: ast.Module) -> bool:
    """Some sequence may be cut into one part a rank."""
    return _Cuts(flat(tree)).any()


class _Cuts:
    """The cuts of one module."""

    def __init__(self, nodes: Flat) -> None:
        self._nodes = nodes
        self._worlds: Worlds | None = None

    def any(self) -> bool:
        """There may be one."""
        return (
            any(map(self._slices, self._nodes.nodes(ast.Slice)))
            or any(map(self._deals, self._nodes.nodes(ast.Call)))
            or any(map(self._is_turn, self._nodes.nodes(ast.Compare)))
            or self._takes_share()
            or self._steps()
        )

    def _slices(self, node: ast.Slice) -> bool:
        """``data[rank::world_size]``; or ``data[i::world_size]``, of which one is taken by rank."""
        if node.lower is None or node.step is None or _is_number(node.lower) or _is_number(node.step):
            return False
        return self._is_world(node.step) and (self._is_rank(node.lower) or self._is_indexed())

    def _deals(self, call: ast.Call) -> bool:
        name, args = call_name(call), call.args
        if name == "split_between_processes":
            return True
        if name in _DEALING:
            given = [*args, *(k.value for k in call.keywords)]
            return any(map(self._is_rank, given)) and any(map(self._is_world, given))
        if name in _SPLITS:
            return any(map(self._is_world, (*args, *(k.value for k in call.keywords)))) and self._is_indexed()
        if name == "range" and len(args) == 3:
            return self._is_rank(args[0]) and self._is_world(args[2])
        return name == "islice" and len(args) == 4 and self._is_rank(args[1]) and self._is_world(args[3])

    def _is_turn(self, node: ast.Compare) -> bool:
        """``i % world_size == rank``."""
        if len(node.ops) != 1:
            return False
        left, right = node.left, node.comparators[0]
        return any(
            isinstance(one, ast.BinOp)
            and isinstance(one.op, ast.Mod)
            and self._is_rank(other)
            and self._is_world(one.right)
            for one, other in ((left, right), (right, left))
        )

    def _takes_share(self) -> bool:
        """``data[rank * share : (rank + 1) * share]``, perhaps with names for the two, where a share is rounded up."""
        return (
            any(map(self._is_rank_share, self._nodes.nodes(ast.BinOp)))
            and any(map(_is_part, self._nodes.nodes(ast.Slice)))
            and any(self._shares())
        )

    def _is_rank_share(self, node: ast.BinOp) -> bool:
        if not isinstance(node.op, ast.Mult):
            return False
        sides = [side for side in (node.left, node.right) if name_of(side).lower().endswith("rank")]
        return bool(sides) and any(map(self._is_rank, (node.left, node.right)))

    def _shares(self) -> Iterator[bool]:
        """A number of items is divided by the world size."""
        for node in self._nodes.nodes(ast.BinOp):
            if isinstance(node.op, ast.Div | ast.FloorDiv):
                yield self._is_world(node.right)

    def _steps(self) -> bool:
        """``while i < n: ...; i += world_size``."""
        loops = self._nodes.places(ast.While)
        for node in self._nodes.nodes(ast.AugAssign) if loops else ():
            if isinstance(node.op, ast.Add) and not _is_number(node.value):
                at = self._nodes.place(node)
                if any(loop < at < self._nodes.ends[loop] for loop in loops) and self._is_world(node.value):
                    return True
        return False

    def _is_indexed(self) -> bool:
        """One of several parts is taken by rank."""
        return any(self._is_rank(node.slice) for node in self._nodes.nodes(ast.Subscript) if not _is_number(node.slice))

    def _is_rank(self, node: ast.AST) -> bool:
        return ranks_of(self._nodes).inside(self._nodes.place(node))

    def _is_world(self, node: ast.AST) -> bool:
        if self._worlds is None:
            self._worlds = Worlds(self._nodes)
            self._worlds.follow()
        return self._worlds.inside(self._nodes.place(node))


def _is_part(node: ast.Slice) -> bool:
    """Consecutive items from a place that is computed."""
    has_ends = node.lower is not None and node.upper is not None and node.step is None
    return has_ends and isinstance(node.lower, ast.BinOp | ast.Name | ast.Attribute)


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant)
