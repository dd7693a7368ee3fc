"""Data loaders of a script: how they are made, which sampler deals out their items, and which loops run over them."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.constants import Constants
from dslint.model.script.data.labels import items_of
from dslint.model.script.data.sources import Source, Sources
from dslint.model.script.names import Names
from dslint.model.script.tree import Loop, Tree

LOADERS = frozenset(
    {
        *("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"),
        *("torchdata.stateful_dataloader.StatefulDataLoader",),
    }
)
DISTRIBUTED_SAMPLERS = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)
# Positions of ``DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, ...)``.
_POSITIONS = {"dataset": 0, "batch_size": 1, "shuffle": 2, "sampler": 3, "batch_sampler": 4, "num_workers": 5}
_POSITIONS |= {"collate_fn": 6, "pin_memory": 7, "drop_last": 8, "timeout": 9, "worker_init_fn": 10}
_TRAINS = frozenset({"backward", "train_batch", "step", "training_step", "train_step", "manual_backward"})
_COUNTERS = frozenset({"range", "trange", "count"})
_MAX_HELPERS = 3


@dataclass(frozen=True, slots=True)
class Pass:
    """A loop (``for``, or ``iter(...)`` inside one) over a loader, and the loop around it that begins it anew."""

    node: cst.CSTNode
    sources: tuple[Source, ...]
    outer: Loop | None


class Loaders:
    """The loaders of one module."""

    def __init__(self, tree: Tree, names: Names, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants
        self.sources = Sources(tree, names)

    def is_loader(self, node: cst.CSTNode | None) -> bool:
        """A call of ``DataLoader``."""
        return isinstance(node, cst.Call) and self._names.qualified(node.func) in LOADERS

    def calls(self) -> list[cst.Call]:
        """Every ``DataLoader(...)``, in source order."""
        return [n for n in self._tree.every(cst.Call) if self.is_loader(n)]

    def argument(self, call: cst.Call, name: str) -> cst.BaseExpression | None:
        """What a ``DataLoader`` gets under a name or at its position."""
        for index, arg in enumerate(call.args):
            if arg.star == "*":
                return None
            if arg.star:
                items = items_of(arg.value, self._names)
                if items is None or name in items:
                    return items[name] if items is not None else None
                continue
            if arg.keyword.value == name if arg.keyword is not None else index == _POSITIONS[name]:
                return arg.value
        return None

    def is_distributed_sampler(self, node: cst.CSTNode | None) -> bool:
        """A call of the ``DistributedSampler`` of torch."""
        return isinstance(node, cst.Call) and self._names.qualified(node.func) in DISTRIBUTED_SAMPLERS

    def passes(self) -> list[Pass]:
        """Every loop over something, and every ``iter(...)`` that a loop repeats."""
        found = []
        for node in self._tree.some(cst.For, cst.Call):
            if isinstance(node, cst.For):
                found.append(Pass(node, tuple(self.sources.of_items(node.iter)), self.repeating(node)))
            elif isinstance(node, cst.Call) and self._names.called(node) == "iter" and len(node.args) == 1:
                loops = self._tree.loops(node)
                if loops and not isinstance(self._tree.parent(node), cst.For):
                    found.append(Pass(node, tuple(self.sources.of_items(node)), self._first(loops)))
        return found

    def repeating(self, node: cst.CSTNode, depth: int = 0) -> Loop | None:
        """The loop over epochs (or the endless one) that runs a node again, also around the helper it stands in."""
        found = self._first(self._tree.loops(node))
        function = self._tree.function(node)
        if found is not None or function is None or depth >= _MAX_HELPERS:
            return found
        for call in self._names.callers.of(function):
            found = self.repeating(call, depth + 1)
            if found is not None:
                return found
        return None

    def _first(self, loops: tuple[Loop, ...]) -> Loop | None:
        return next((loop for loop in loops if self._repeats(loop)), None)

    def _repeats(self, loop: Loop) -> bool:
        """The loop counts (epochs, steps) or waits for a condition, and runs more than once."""
        if isinstance(loop, cst.While):
            return not _ends_at_once(loop.body)
        counter = self._counter(loop.iter)
        return counter is not None and not self._runs_once(counter)

    def _counter(self, iterable: cst.BaseExpression) -> cst.Call | None:
        if isinstance(iterable, cst.Name):  # ``epochs = trange(n)`` before the loop
            iterable = self._names.single_value(iterable) or iterable
        while isinstance(iterable, cst.Call):
            if self._names.called(iterable) in _COUNTERS:
                return iterable
            iterable = iterable.args[0].value if iterable.args else iterable.func
        return None

    def _runs_once(self, counter: cst.Call) -> bool:
        """``range(1)``: the number is in the code, not the default of an argument that a command replaces."""
        args = [a.value for a in counter.args if a.keyword is None]
        if len(args) != 1 or (
            not (isinstance(args[0], cst.Attribute) and self._constants.is_stated(args[0]))
            and any(self._is_argument(n) for n in self._tree.descendants(args[0]))
        ):
            return False
        found = self._names.bindings(args[0].value, args[0]) if isinstance(args[0], cst.Name) else []
        if len(found) == 1 and found[0].kind == "param" and found[0].value is not None:
            return self._constants.value(found[0].value).get_or(None) in (0, 1)
        count: Fact[object] = self._constants.value(args[0])
        return count.get_or(None) in (0, 1)

    def _is_argument(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            return value is not None and any(isinstance(n, cst.Attribute) for n in self._tree.descendants(value))
        # What a class or a namespace of the file states is no argument.
        is_stated = isinstance(node, cst.Attribute) and self._constants.is_stated(node)
        return isinstance(node, cst.Attribute) and not is_stated

    def trains(self, body: cst.CSTNode, depth: int = 0) -> bool:
        """What runs with a node trains: a backward, a step, ``train_...``, also in helpers of this file."""
        for node in self._tree.own_nodes(body):
            if not isinstance(node, cst.Call):
                continue
            name = self._names.called(node)
            if name in _TRAINS or (name.startswith("train_") and isinstance(node.func, cst.Attribute)):
                return True
            helper = self._names.local_function(node) if depth < _MAX_HELPERS else None
            if helper is not None and self.trains(helper.body, depth + 1):
                return True
        return False


def _ends_at_once(body: cst.BaseSuite) -> bool:
    """The block leaves the loop in its first round."""
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1] if last.body else None
    return isinstance(last, cst.Break | cst.Return)
