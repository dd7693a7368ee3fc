"""Where in a module something happens that may stand in a trace: calls and the ways out of blocks."""

from __future__ import annotations

from bisect import bisect_left

import libcst as cst

from dslint.model.script.tree import Tree

_NEWS = (cst.Call, cst.Return, cst.Break, cst.Continue, cst.Raise, cst.Yield)
_OWN_BODY = frozenset({cst.Lambda, cst.FunctionDef, cst.ClassDef})


class News:
    """Answers for one module; statements without news are skipped."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._places = tree.positions(*_NEWS)

    def is_in(self, node: cst.CSTNode) -> bool:
        """The node holds a call or a way out; nothing else changes a trace."""
        start = self._tree.position(node)
        at = bisect_left(self._places, start)
        return at < len(self._places) and self._places[at] < self._tree.ends[start]

    def calls_in(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The calls (and ``yield``) that run when the node runs, in source order."""
        start = self._tree.position(node)
        first, last = bisect_left(self._places, start), bisect_left(self._places, self._tree.ends[start])
        found = (self._tree.order[at] for at in self._places[first:last])
        return [item for item in found if type(item) in (cst.Call, cst.Yield) and not self._runs_later(item, node)]

    def _runs_later(self, item: cst.CSTNode, node: cst.CSTNode) -> bool:
        """A function, class or lambda stands between the two."""
        for outer in self._tree.parents(item):
            if type(outer) in _OWN_BODY and self._tree.contains(node, outer):
                return True
            if outer is node:
                return False
        return False
