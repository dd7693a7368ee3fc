"""Where a script makes its default process group, and what comes after that for certain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.names import Names
from dslint.model.script.setup.timeouts import GROUP_CREATORS
from dslint.model.script.tree import Tree

# Constructors of accelerate that make the group unless it exists.
_STATES = frozenset({"PartialState", "AcceleratorState", "Accelerator"})
# What lies between a statement and its function without deciding whether it runs.
_PLAIN_PARENTS = (cst.With, cst.Module, cst.FunctionDef, cst.ClassDef)
_DECIDING = (cst.IfExp, cst.BooleanOperation, cst.Lambda, cst.ListComp, cst.DictComp, cst.SetComp, cst.GeneratorExp)


@dataclass(frozen=True, slots=True)
class GroupMade:
    """A call that makes the default process group, and the statement's call that runs it (itself or a local helper)."""

    call: cst.Call
    site: cst.Call


class GroupSetup:
    """The process group of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._made: list[GroupMade] | None = None

    def all(self) -> list[GroupMade]:
        """Every place that makes the group, in source order; calls of local helpers that always make it included."""
        if self._made is None:
            calls = self._tree.every(cst.Call)
            direct = [c for c in calls if self.is_creator(c)]
            helpers = {id(f): c for c in direct if (f := self._tree.function(c)) is not None and self._is_plain(c, f)}
            self._made = [GroupMade(c, c) for c in direct]
            for call in calls:
                function = self._names.local_function(call) if helpers else None
                if function is not None and id(function) in helpers:
                    self._made.append(GroupMade(helpers[id(function)], call))
            self._made.sort(key=lambda made: self._tree.position(made.site))
        return self._made

    def is_creator(self, call: cst.Call) -> bool:
        """The call makes the default group unless there is one."""
        name = self._names.qualified(call.func) or ""
        return name in GROUP_CREATORS or (name.startswith("accelerate.") and name.rpartition(".")[2] in _STATES)

    def before(self, node: cst.CSTNode) -> GroupMade | None:
        """The last place that has certainly made the group when a node of the same function runs."""
        found = [m for m in self.all() if m.site is not node and self.runs_before(m.site, node)]
        if not found or self._is_destroyed(found[-1].site, node):
            return None
        return found[0]

    def runs_before(self, first: cst.CSTNode, node: cst.CSTNode) -> bool:
        """A node of the same function (or of the module level) that has run whenever another one runs."""
        tree = self._tree
        if tree.function(first) is not tree.function(node) or tree.position(first) >= tree.position(node):
            return False
        # An argument of a call runs before it, but is no statement before it.
        if tree.contains(node, first) or tree.contains(first, node):
            return False
        return all(tree.contains(block, node) for block in self._conditional_blocks(first))

    def _conditional_blocks(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        inner = node
        for outer in self._tree.parents(node):
            if isinstance(outer, cst.FunctionDef):
                return
            if isinstance(outer, _DECIDING):
                yield inner
            elif isinstance(outer, cst.IndentedBlock | cst.SimpleStatementSuite):
                owner = self._tree.parent(outer)
                if not isinstance(owner, _PLAIN_PARENTS) and not _is_gone_through(owner, outer):
                    yield outer
            inner = outer

    def _is_plain(self, call: cst.Call, function: cst.FunctionDef) -> bool:
        """The function makes the group whenever it is called."""
        if any(True for _ in self._conditional_blocks(call)):
            return False
        before = (n for n in self._tree.own_nodes(function) if isinstance(n, cst.Return))
        return all(self._tree.position(n) > self._tree.position(call) for n in before)

    def _is_destroyed(self, first: cst.CSTNode, node: cst.CSTNode) -> bool:
        start, end = self._tree.position(first), self._tree.position(node)
        return any(
            isinstance(n, cst.Call) and self._names.called(n) == "destroy_process_group"
            for n in self._tree.order[start:end]
        )


def _is_gone_through(owner: cst.CSTNode | None, block: cst.CSTNode) -> bool:
    """The block of a ``try`` that nothing but an error leaves half done, and no handler makes up for that."""
    if not isinstance(owner, cst.Try):
        return False
    is_body = block is owner.body or (owner.finalbody is not None and block is owner.finalbody.body)
    return is_body and all(isinstance(_last(h.body), cst.Raise) for h in owner.handlers)


def _last(block: cst.BaseSuite) -> cst.CSTNode | None:
    last = block.body[-1] if block.body else None
    return last.body[-1] if isinstance(last, cst.SimpleStatementLine) and last.body else last
