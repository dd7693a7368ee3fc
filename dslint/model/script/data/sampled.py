"""Orders that a ``DistributedSampler`` cuts into one part a rank, where they differ between the ranks."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.data.loaders import Loaders
from dslint.model.script.data.randomness import Order, Randomness
from dslint.model.script.dotted import is_self
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.tree import Tree

# ``DistributedSampler(dataset, num_replicas, ...)``.
_POSITIONS = {"dataset": 0, "num_replicas": 1}
_ITEMS = ("__getitem__", "__len__")


class SampledOrders:
    """Answers for the samplers of one module."""

    def __init__(self, tree: Tree, names: Names, loaders: Loaders, randomness: Randomness) -> None:
        self._tree = tree
        self._names = names
        self._loaders = loaders
        self._randomness = randomness

    def dataset(self, sampler: cst.Call) -> Order | None:
        """The shuffle by which the data set, of a class of this file, puts its items in an order of the rank's own."""
        given = self._argument(sampler, "dataset")
        if given is None or not self._deals(sampler):
            return None
        made = [source.node for source in self._loaders.sources.of(given)]
        names = {n.func.value for n in made if isinstance(n, cst.Call) and isinstance(n.func, cst.Name)}
        owner = self._names.local_class(names.pop(), sampler) if len(made) == len(names) == 1 else None
        start = self._names.member(owner, "__init__") if owner is not None else None
        if owner is None or start is None:
            return None
        calls = (n for n in self._tree.own_nodes(start.body) if isinstance(n, cst.Call))
        orders = (order for order in map(self._own_order, calls) if order is not None)
        return next((order for order in orders if self._makes_items(order.call, start, owner)), None)

    def _own_order(self, call: cst.Call) -> Order | None:
        return self._randomness.own_order(call) if self._names.called(call) == "shuffle" and call.args else None

    def _makes_items(self, shuffle: cst.Call, start: cst.CSTNode, owner: cst.ClassDef) -> bool:
        """What is shuffled becomes an attribute that ``__getitem__`` or ``__len__`` asks for."""
        given = shuffle.args[0].value
        text = self._tree.text(given)
        asked = self._asked(owner)
        if isinstance(given, cst.Attribute) and is_self(given.value):
            return given.attr.value in asked
        return isinstance(given, cst.Name) and bool(asked & self._made_of(text, shuffle, start))

    def _asked(self, owner: cst.ClassDef) -> set[str]:
        methods = (self._names.member(owner, name) for name in _ITEMS)
        nodes = (n for method in methods if method is not None for n in self._tree.own_nodes(method.body))
        return {n.attr.value for n in nodes if isinstance(n, cst.Attribute) and is_self(n.value)}

    def _made_of(self, name: str, shuffle: cst.Call, start: cst.CSTNode) -> set[str]:
        """The attributes that a statement behind the shuffle makes of a variable, or of its items in a loop."""
        found = set()
        for node in self._tree.own_nodes(start):
            if not isinstance(node, cst.Assign | cst.AugAssign | cst.Call):
                continue
            if self._tree.position(node) < self._tree.position(shuffle):
                continue
            loops = [p for p in self._tree.parents(node) if isinstance(p, cst.For) and self._tree.contains(start, p)]
            sources = [node, *(loop.iter for loop in loops)]
            if any(self._speaks_of(source, name) for source in sources):
                targets = self._targets(node)
                found |= {t.attr.value for t in targets if isinstance(t, cst.Attribute) and is_self(t.value)}
        return found

    @staticmethod
    def _targets(node: cst.Assign | cst.AugAssign | cst.Call) -> list[cst.BaseExpression]:
        """What is assigned to, and the list of ``self.items.append(...)``."""
        if isinstance(node, cst.Assign):
            return [t.target for t in node.targets]
        if isinstance(node, cst.AugAssign):
            return [node.target]
        func = node.func
        is_added = isinstance(func, cst.Attribute) and func.attr.value in ("append", "extend")
        return [func.value] if is_added and isinstance(func, cst.Attribute) else []

    def _speaks_of(self, node: cst.CSTNode, name: str) -> bool:
        return any(isinstance(n, cst.Name) and n.value == name for n in self._tree.descendants(node))

    def _deals(self, sampler: cst.Call) -> bool:
        """The sampler is called with arguments that can be read, and makes more than one part."""
        replicas = self._argument(sampler, "num_replicas")
        return not any(a.star for a in sampler.args) and (replicas is None or number_of(replicas) != 1)

    @staticmethod
    def _argument(sampler: cst.Call, name: str) -> cst.BaseExpression | None:
        for index, arg in enumerate(sampler.args):
            if arg.keyword.value == name if arg.keyword is not None else index == _POSITIONS[name]:
                return arg.value
        return None
