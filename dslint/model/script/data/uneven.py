"""Loops that the ranks run a different number of times although each iteration waits for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.collective.summaries import Event, Summaries
from dslint.model.script.constants import Constants
from dslint.model.script.data.partition import Partition, Partitions
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guards, leaves
from dslint.model.script.tree import Tree


@dataclass(frozen=True, slots=True)
class UnevenLoop:
    """A cut into one part a rank, the place that repeats (``loop``), and the call in it that waits for all ranks.

    ``event`` is ``None`` for the backward of a DDP model.
    """

    partition: Partition
    loop: cst.CSTNode
    call: cst.Call
    event: Event | None


class UnevenLoops:
    """Finds such loops in one module."""

    def __init__(
        self,
        tree: Tree,
        names: Names,
        guards: Guards,
        constants: Constants,
        objects: Objects,
        summaries: Summaries,
        world_size: Fact[int],
    ) -> None:
        self._tree = tree
        self._objects = objects
        self._summaries = summaries
        self._world = world_size
        self._partitions = Partitions(tree, names, guards, constants)
        self._found: list[UnevenLoop] | None = None

    def all(self) -> list[UnevenLoop]:
        """Every such loop, in source order."""
        if self._found is None:
            kinds = (cst.For, cst.While, cst.If, cst.CompFor)
            candidates = map(self._of, self._tree.some(*kinds))
            self._found = [found for found in candidates if found is not None]
        return self._found

    def partition(self, node: cst.BaseExpression) -> Partition | None:
        """The cut that an expression makes."""
        return self._partitions.of(node)

    def _of(self, node: cst.CSTNode) -> UnevenLoop | None:
        cut = self._cut(node)
        if cut is None:
            return None
        partition, place, repeated = cut
        if self._divides(partition) or self._partitions.is_evened(node, partition):
            return None
        body = [n for part in repeated for n in self._own(part)]
        if isinstance(node, cst.For | cst.While) and any(isinstance(n, cst.Break) for n in body):
            return None  # a loop with a ``break`` may well end evenly
        found = self._waiting_call(body)
        return UnevenLoop(partition, place, *found) if found is not None else None

    def _cut(self, node: cst.CSTNode) -> tuple[Partition, cst.CSTNode, list[cst.CSTNode]] | None:
        """The cut, where it shows, and the nodes that run once an item."""
        if isinstance(node, cst.For):
            partition = self._partitions.of(node.iter)
            return (partition, node.iter, [node.body]) if partition else None
        if isinstance(node, cst.CompFor):
            partition = self._partitions.of(node.iter)
            outer = self._tree.parent(node)
            element = getattr(outer, "elt", None) or getattr(outer, "value", None)
            return (partition, node.iter, [element]) if partition and isinstance(element, cst.CSTNode) else None
        if isinstance(node, cst.While):
            partition = self._partitions.stepping(node)
            return (partition, node.test, [node.body]) if partition else None
        turn = self._partitions.turn(node.test) if isinstance(node, cst.If) and self._tree.loops(node) else None
        if turn is None or not isinstance(node, cst.If):
            return None
        if turn[1]:
            return turn[0], node.test, [node.body]
        return (turn[0], node.test, self._rest(node)) if leaves(node.body) else None

    def _rest(self, node: cst.If) -> list[cst.CSTNode]:
        """The statements after ``if i % world_size != rank: continue``."""
        block = self._tree.parent(node)
        if not isinstance(block, cst.IndentedBlock):
            return []
        start = self._tree.position(node)
        return [s for s in block.body if self._tree.position(s) > start]

    def _own(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """A node and what runs with it, without the bodies of inner functions."""
        inner = isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda)
        return [] if inner else [node, *self._tree.own_nodes(node)]

    def _divides(self, partition: Partition) -> bool:
        world, total = self._world, partition.total
        if not (world.is_known and total.is_known) or total.get() < 0 or world.get() < 1:
            return False
        return total.get() % world.get() == 0

    def _waiting_call(self, body: list[cst.CSTNode]) -> tuple[cst.Call, Event | None] | None:
        """The first call that waits for all ranks; else the backward after the forward of a DDP model."""
        forwarded = False
        averaged: tuple[cst.Call, Event | None] | None = None
        for node in body:
            if not isinstance(node, cst.Call):
                continue
            event = self._summaries.event(node)
            if event is not None and event.guard is None:
                if any(not c.averages for c in event.collectives):
                    return node, event
                averaged = averaged or (node, event if event.through is not None else None)
            if averaged is not None:
                continue
            if self._objects.likely(node.func) == "ddp":
                forwarded = True
            elif isinstance(node.func, cst.Attribute) and node.func.attr.value == "backward":
                # ``loss_of(model(x)).backward()``: the forward stands inside the call.
                inner = (n for n in self._own(node.func.value) if isinstance(n, cst.Call))
                if forwarded or any(self._objects.likely(n.func) == "ddp" for n in inner):
                    averaged = node, None
        return averaged
