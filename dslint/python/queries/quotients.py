"""What a number is divided by: through variables, parameters, conversions and functions of the project.

Asked by words: a loss that is divided by a count, a factor of gradients, the sum over ranks of a count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dslint.python.events import Call, Node, walk
from dslint.python.source import Module
from dslint.python.values import Function

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 80
_DIVIDES = ("div", "div_", "true_divide", "divide")
_PARTS = ("stack", "cat", "tensor", "as_tensor", "max", "float", "int", "min", "clamp")
Named = tuple[ast.AST | None, str]


@dataclass(frozen=True, slots=True)
class Place:
    """An expression, and the function around it (or the module)."""

    module: Module
    scope: ast.AST
    node: ast.AST


@dataclass(slots=True)
class Traced:
    """What a number is computed of: expressions, the names on the way, and what is divided by."""

    pieces: list[Place] = field(default_factory=list)
    names: set[Named] = field(default_factory=set)
    divisions: list[tuple[Place, Place]] = field(default_factory=list)
    is_whole: bool = True


class Quotients:
    """The arithmetic of one run, as the code writes it."""

    def __init__(self, modules: Iterable[Module], trees: Iterable[Node]) -> None:
        self._modules = list(modules)
        self._called: dict[ast.AST, Function] = {}
        self._callers: dict[ast.AST, dict[ast.AST, Place]] = {}
        self._scopes: dict[Module, dict[ast.AST, ast.AST]] = {}
        for tree in trees:
            for node in walk(tree):
                if isinstance(node, Call) and isinstance(node.function, Function) and isinstance(node.node, ast.Call):
                    self._called[node.node] = node.function
                    place = Place(node.module, self.scope(node.module, node.node), node.node)
                    if node.function.node is not None:
                        self._callers.setdefault(node.function.node, {})[node.node] = place

    def scope(self, module: Module, node: ast.AST) -> ast.AST:
        """Return the innermost function around a node, or the module."""
        known = self._scopes.get(module)
        if known is None:
            known = self._scopes[module] = {}
            pending: list[tuple[ast.AST, ast.AST]] = [(module.tree, module.tree)]
            while pending:
                top, around = pending.pop()
                known[top] = around
                inner = top if isinstance(top, _FUNCTIONS) else around
                pending.extend((child, inner) for child in ast.iter_child_nodes(top))
        return known.get(node, module.tree)

    def named(self, module: Module, node: ast.AST | None) -> Named | None:
        """Return the name of a variable or field, as it is told apart from others."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name):
            return self.scope(module, node), node.id
        return (None, node.attr) if isinstance(node, ast.Attribute) else None

    def trace(self, module: Module, node: ast.AST) -> Traced:
        """Return what an expression is computed of."""
        traced = Traced()
        pending = [Place(module, self.scope(module, node), node)]
        seen: set[ast.AST] = set()
        while pending:
            place = pending.pop()
            if place.node in seen:
                continue
            seen.add(place.node)
            traced.pieces.append(place)
            if len(seen) > _MOST:
                traced.is_whole = False
                return traced
            pending.extend(self._behind(place, traced))
        return traced

    def _behind(self, place: Place, traced: Traced) -> Iterator[Place]:
        node = place.node

        def beside(*parts: ast.AST) -> Iterator[Place]:
            return (Place(place.module, place.scope, part) for part in parts)

        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Div):
                traced.divisions.append((place, Place(place.module, place.scope, node.right)))
            yield from beside(node.left, node.right)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            yield from self._defined(place, traced)
        elif isinstance(node, ast.IfExp):
            yield from beside(node.body, node.orelse)
        elif isinstance(node, ast.UnaryOp | ast.Starred):
            yield from beside(*ast.iter_child_nodes(node))
        elif isinstance(node, ast.List | ast.Tuple):
            yield from beside(*node.elts)
        elif isinstance(node, ast.Call):
            yield from self._of_call(place, node, traced)

    def _of_call(self, place: Place, node: ast.Call, traced: Traced) -> Iterator[Place]:
        function = self._called.get(node)
        if function is not None and function.node is not None:
            body = [n for n in ast.walk(function.node) if isinstance(n, ast.Return) and n.value is not None]
            yield from (Place(function.module, function.node, n.value) for n in body if n.value is not None)
            return
        func = node.func
        word = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if word in _DIVIDES and node.args:
            traced.divisions.append((place, Place(place.module, place.scope, node.args[-1])))
        if isinstance(func, ast.Attribute) and not (isinstance(func.value, ast.Name) and func.value.id == "torch"):
            yield Place(place.module, place.scope, func.value)
        if word in (*_DIVIDES, *_PARTS, "mul"):
            yield from (Place(place.module, place.scope, part) for part in node.args)

    def _defined(self, place: Place, traced: Traced) -> Iterator[Place]:
        """Yield what a name is given in its function, by its callers, or for a field anywhere in the file."""
        name = self.named(place.module, place.node)
        if name is None:
            return
        traced.names.add(name)
        scope, word = name
        for node in ast.walk(scope if scope is not None else place.module.tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            value = getattr(node, "value", None)
            if value is None or not any(self.named(place.module, target) == name for target in targets):
                continue
            inner = Place(place.module, self.scope(place.module, value), value)
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
                traced.divisions.append((Place(place.module, inner.scope, node), inner))
            yield inner
        if isinstance(scope, _FUNCTIONS):
            yield from self._passed(scope, word)

    def _passed(self, scope: ast.FunctionDef | ast.AsyncFunctionDef, word: str) -> Iterator[Place]:
        names = [arg.arg for arg in (*scope.args.posonlyargs, *scope.args.args)]
        for place in self._callers.get(scope, {}).values():
            call = place.node
            if word not in names or not isinstance(call, ast.Call):
                continue
            at = names.index(word) - (names[:1] in (["self"], ["cls"]))
            given = [keyword.value for keyword in call.keywords if keyword.arg == word]
            given += call.args[at : at + 1] if at >= 0 else []
            yield from (Place(place.module, place.scope, node) for node in given)
