"""Names for what is unknown in a trace: the same name stands for the same answer."""

from __future__ import annotations

import ast
from functools import lru_cache

import libcst as cst

from dslint.model.script.dotted import keyword
from dslint.model.script.names import Names
from dslint.model.script.objects.reaching import Reaching
from dslint.model.script.ranks.guards import Guards
from dslint.model.script.ranks.rankset import Ranks, number_of
from dslint.model.script.traces.side import Side
from dslint.model.script.tree import Tree


class Symbols:
    """Answers for one module."""

    def __init__(self, tree: Tree, names: Names, reaching: Reaching, guards: Guards) -> None:
        self._tree = tree
        self._names = names
        self._reaching = reaching
        self._guards = guards

    def of(self, test: cst.BaseExpression, side: Side) -> str:
        """The text of what is unknown in a test: ``flag`` of ``rank == 0 and flag``, and of ``[flag][0]``."""
        if type(test) is cst.BooleanOperation:
            left, right = side.decide(test.left), side.decide(test.right)
            if left is not None and right is None:
                return self.of(test.right, side)
            if right is not None and left is None:
                return self.of(test.left, side)
            if left is None and right is None:  # what is known may stand deeper: ``flag and rank == 0 and more``
                word = "and" if type(test.operator) is cst.And else "or"
                return f"({self.of(test.left, side)} {word} {self.of(test.right, side)})"
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            return f"not {self.of(test.expression, side)}"
        return plain(self._tree.text(self._listed(test) or test))

    def _listed(self, test: cst.BaseExpression) -> cst.BaseExpression | None:
        """``flag`` of ``stop[0]``, where ``stop = [flag]`` stays as it is up to here."""
        if type(test) is not cst.Subscript or type(test.value) is not cst.Name:
            return None
        name, index = test.value, test.slice[0].slice
        if type(index) is not cst.Index or number_of(index.value) != 0:
            return None
        uses = (n for n in self._tree.own_nodes(self._names.scope(name)) if type(n) is cst.Name)
        others = [n for n in uses if n.value == name.value and n is not name]
        made = self._made(name, any(map(self._is_told, others)))
        if made is None or not all(
            isinstance(self._tree.parent(n), cst.AssignTarget) or self._is_told(n) for n in others
        ):
            return None
        element = made.elements[0].value
        return element if len(made.elements) == 1 and isinstance(element, cst.Name | cst.Attribute) else None

    def _made(self, name: cst.Name, is_told: bool) -> cst.List | None:
        """The list as it was made; after a broadcast (``is_told``) that of rank 0."""
        found = self._reaching.of_bindings(self._names.bindings(name.value, name), name)
        if is_told and len(found) > 1:
            latest = max(found, key=lambda b: self._tree.position(b.node))
            guard = self._guards.guard(latest.node)
            if guard is None or guard.ranks is not Ranks.MAIN:
                return None
            found = [latest]
        made = found[0].value if len(found) == 1 else None
        return made if type(made) is cst.List else None

    def _is_told(self, name: cst.Name) -> bool:
        """A use that makes the list the same on all ranks: its broadcast from rank 0."""
        outer = self._tree.parent(name)
        call = self._tree.parent(outer) if isinstance(outer, cst.Arg) else None
        if not isinstance(call, cst.Call) or "broadcast" not in self._names.called(call):
            return False
        source = keyword(call, "src")
        return source is None or number_of(source) == 0


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """The text of an expression in one way of writing: ``a=="b"`` and ``(a == 'b')`` ask the same."""
    try:
        return ast.unparse(ast.parse(f"({text})", mode="eval"))
    except SyntaxError:  # dslint reads the grammar of newer releases of Python, too
        return text
