"""What the recorders of one module have in common."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from dslint.model.script.names import Names
from dslint.model.script.traces.news import News
from dslint.model.script.tree import Tree


class Ground:
    """What the recorders of all sides of a module walk on."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self.tree = tree
        self.names = names
        self._helpers: dict[int, cst.FunctionDef | None] = {}

    def helper(self, call: cst.Call) -> cst.FunctionDef | None:
        """The function or method of this file that a call runs: every side comes to the same calls."""
        if id(call) not in self._helpers:
            self._helpers[id(call)] = self.names.local_function(call)
        return self._helpers[id(call)]

    @cached_property
    def news(self) -> News:
        """Where something happens."""
        return News(self.tree)
