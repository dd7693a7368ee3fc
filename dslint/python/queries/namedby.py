"""Containers that hold things by the names of parameters, and who looks for names in them.

`shadow = {name: p.clone() for name, p in model.named_parameters()}` fills one; `shadow[name]` and `name in shadow` in a
loop over the names of another model ask it. Containers are told by their names: a field of any object, or a variable
of one function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPREHENSIONS = (ast.DictComp, ast.SetComp, ast.ListComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_GROWS = ("append", "add", "setdefault")
# Functions and methods that give the names of a model as they are.
_SAME = ("dict", "list", "sorted", "set", "items", "keys", "tqdm")

# What gives a dictionary by the names, of which nothing must be made.
_DICTIONARY = "state_dict"

Container = tuple[str, ast.AST | None]


@dataclass(frozen=True, slots=True)
class Lookup:
    """A name of a model is looked for in a container: `raises` by `box[name]`, else by `name in box`."""

    container: Container
    node: ast.expr
    raises: bool


class Named:
    """What one module does with the names that calls give."""

    def __init__(self, tree: ast.Module) -> None:
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def filled(self, call: ast.AST) -> Iterator[Container]:
        """Yield the containers that the names from a call fill."""
        loop, name = self._loop(call)
        if isinstance(loop, ast.For):
            for node in ast.walk(loop):
                yield from self._grown(node, name)
            return
        made: ast.AST | None = self._top(call)
        if isinstance(loop, _COMPREHENSIONS):
            key = loop.key if isinstance(loop, ast.DictComp) else loop.elt
            made = loop if isinstance(key, ast.Name) and key.id == name else None
        made = self._top(made) if made is not None else None
        assigned = self._parents.get(made) if made is not None else None
        is_itself = made is call and not (isinstance(call, ast.Call) and _word(call.func) == _DICTIONARY)
        if isinstance(assigned, ast.Assign | ast.AnnAssign) and assigned.value is made and not is_itself:
            targets = assigned.targets if isinstance(assigned, ast.Assign) else [assigned.target]
            yield from (box for target in targets if (box := self._container(target)) is not None)

    def lookups(self, call: ast.AST) -> Iterator[Lookup]:
        """Yield the places where the names from a call are looked for."""
        loop, name = self._loop(call)
        for node in ast.walk(loop) if loop is not None and name else ():
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is(node.slice, name):
                box = self._container(node.value)
                yield from (Lookup(box, node, raises=True),) if box is not None else ()
            if isinstance(node, ast.Compare) and _is(node.left, name) and isinstance(node.ops[0], ast.In | ast.NotIn):
                box = self._container(node.comparators[0])
                yield from (Lookup(box, node, raises=False),) if box is not None else ()

    def _top(self, node: ast.AST) -> ast.AST:
        """Return the outermost call around an expression that hands on its names."""
        outer = self._parents.get(node)
        while isinstance(outer, ast.Attribute | ast.Call):
            if (outer.attr if isinstance(outer, ast.Attribute) else _word(outer.func)) not in _SAME:
                break
            node, outer = outer, self._parents.get(outer)
        return node

    def _loop(self, call: ast.AST) -> tuple[ast.AST | None, str]:
        """Return the loop or comprehension over the names from a call, and the variable of the name."""
        source = self._top(call)
        outer = self._parents.get(source)
        if isinstance(outer, ast.comprehension) and outer.iter is source:
            return self._parents.get(outer), _first(outer.target)
        if isinstance(outer, ast.For) and outer.iter is source:
            return outer, _first(outer.target)
        return None, ""

    def _grown(self, node: ast.AST, name: str) -> Iterator[Container]:
        if isinstance(node, ast.Assign):
            parts = [t.value for t in node.targets if isinstance(t, ast.Subscript) and _is(t.slice, name)]
            if any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) for n in ast.walk(node.value)):
                parts = []  # an update of what is there
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            parts = [node.func.value] if node.args and _is(node.args[0], name) else []
        else:
            parts = []
        yield from (box for part in parts if (box := self._container(part)) is not None)

    def _container(self, node: ast.AST) -> Container | None:
        if isinstance(node, ast.Attribute):
            return node.attr, None
        if not isinstance(node, ast.Name):
            return None
        around: ast.AST | None = node
        while around is not None and not isinstance(around, _FUNCTIONS):
            around = self._parents.get(around)
        return node.id, around


def _word(func: ast.AST) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _first(target: ast.expr) -> str:
    part = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    return part.id if isinstance(part, ast.Name) else ""


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
