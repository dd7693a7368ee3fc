"""Values that some ranks only have set: ``if rank == 0: stop = read()`` and then ``if stop:``, with nobody told."""

from __future__ import annotations

from functools import cached_property
from itertools import takewhile

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.traces.agreement import Agreements
from dslint.model.script.tree import Tree

_TEXT = cst.Module([])


class LoneValues:
    """Answers for one module."""

    def __init__(self, tree: Tree, names: Names, guards: Guards, objects: Objects, agreements: Agreements) -> None:
        self._tree = tree
        self._names = names
        self._guards = guards
        self._objects = objects
        self._agreements = agreements
        self._may_differ: dict[int, bool] = {}
        self._guarding: dict[int, bool] = {}

    def asked_in(self, test: cst.BaseExpression) -> cst.CSTNode | None:
        """``stop = False``; ``if rank == 0: stop = read()``; ``if stop:``, and nothing told the other ranks."""
        for node in self._tree.descendants(test):
            found = None
            if type(node) is cst.Subscript:
                found = self._item_set_on_some(node)
            elif type(node) is cst.Name and type(self._tree.parent(node)) is not cst.Attribute:
                found = self._name_set_on_some(node)
            elif type(node) is cst.Attribute and type(node.value) is cst.Name:
                found = self._name_set_on_some(node.value)
            if found is not None:
                return found
        return None

    def _name_set_on_some(self, name: cst.Name) -> cst.CSTNode | None:
        found = self._names.bindings(name.value, name)
        if id(found) not in self._may_differ:
            self._may_differ[id(found)] = any(self._may_be_lone(b, len(found)) for b in found)
        if not self._may_differ[id(found)]:
            return None
        reaching = self._objects.reaching.of_bindings(found, name)
        chosen = [b for b in reaching if type(b.value) is cst.IfExp and self._is_chosen_by_rank(b.value)]
        lone = [b for b in reaching if b.kind in ("assign", "augmented") and self._is_lone(b.node, name)]
        # Two constants are told apart by the guards themselves: ``leads = False`` ... ``leads = True``.
        computed = [b for b in lone if b.kind == "augmented" or isinstance(b.value, cst.Call | cst.Comparison)]
        if not chosen and (len(reaching) < 2 or len(lone) == len(reaching) or not computed):
            return None
        told = [*chosen, *computed]
        if any(self._agreements.between(b, name) or self._agreements.told_in_list(b, name, reaching) for b in told):
            return None
        return told[0].node

    def _may_be_lone(self, binding: Binding, count: int) -> bool:
        """A rank alone may compute the value there: a look that spares most names the question what reaches them."""
        if type(binding.value) is cst.IfExp:
            return True
        computed = binding.kind == "augmented" or type(binding.value) in (cst.Call, cst.Comparison)
        return count > 1 and computed and binding.kind in ("assign", "augmented") and self._is_behind_test(binding.node)

    def _is_behind_test(self, node: cst.CSTNode) -> bool:
        """Only some ranks come to a node because of a test around it, and not because the others have left before."""
        key = id(node)
        if key not in self._guarding:
            # Most stand behind no test at all, or behind tests that have nothing to do with ranks.
            outer = takewhile(lambda n: type(n) is not cst.FunctionDef, self._tree.parents(node))
            guard = self._guards.guard(node) if any(map(self._may_choose_ranks, outer)) else None
            self._guarding[key] = guard is not None and guard.kind == "test"
        return self._guarding[key]

    def _may_choose_ranks(self, node: cst.CSTNode) -> bool:
        if type(node) is cst.BooleanOperation:
            test: cst.BaseExpression = node.left
        elif type(node) is cst.If or type(node) is cst.IfExp or type(node) is cst.While:
            test = node.test
        else:
            return type(node) is cst.MatchCase
        yes, no = self._guards.branches(test)
        return yes.is_partial or no.is_partial

    def _is_chosen_by_rank(self, value: cst.IfExp) -> bool:
        """``read() if rank == 0 else False``."""
        yes, no = self._guards.branches(value.test)
        computed = any(type(n) is cst.Call for arm in (value.body, value.orelse) for n in self._tree.descendants(arm))
        return computed and yes.is_partial and no.is_partial

    def _item_set_on_some(self, test: cst.Subscript) -> cst.CSTNode | None:
        """``stop = [False]``; ``if rank == 0: stop[0] = read()``; ``if stop[0]:``."""
        if not self._items:
            return None
        text = _TEXT.code_for_node(test)
        if text not in self._items:
            return None
        scope = self._tree.function(test) or self._tree.module
        for node in self._tree.own_nodes(scope):
            if self._tree.position(node) > self._tree.position(test):
                break
            if type(node) is not cst.Assign or not isinstance(node.value, cst.Call | cst.Comparison):
                continue
            target = node.targets[0].target
            if type(target) is cst.Subscript and _TEXT.code_for_node(target) == text and self._is_lone(node, test):
                told = Binding("assign", node, node.value)
                return None if self._agreements.between(told, test.value) else node
        return None

    @cached_property
    def _items(self) -> set[str]:
        """The items of lists and dicts that the file sets to what it computes."""
        set_to = ((a.targets[0].target, a.value) for a in self._tree.every(cst.Assign))
        return {
            _TEXT.code_for_node(target)
            for target, value in set_to
            if type(target) is cst.Subscript and type(value) in (cst.Call, cst.Comparison)
        }

    def _is_lone(self, node: cst.CSTNode, test: cst.CSTNode) -> bool:
        """Only some ranks come to a node, within the function of the test."""
        if self._tree.function(node) is not self._tree.function(test):
            return False
        return self._is_behind_test(node)
