"""What code a value is computed from: through names, fields, parameters and functions, without an order.

For questions about words: whether a number that is passed has anything to do with the number of ranks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from dslint.python.events import Call, walk
from dslint.python.source import Module
from dslint.python.values import Function

_MAX_PIECES = 150
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Piece = tuple[Module, ast.expr | ast.stmt]


class Derived:
    """The code behind expressions, in the modules and calls of one run."""

    def __init__(
        self,
        modules: Iterable[Module],
        trees: Iterable[object],
        skipped: str = "",
        dead: frozenset[int] = frozenset(),
        *,
        by_field: bool = False,
    ) -> None:
        """Look in these modules and trees; names that match `skipped` lead nowhere, `dead` nodes (ids) never run.

        `by_field`: what one field of an object gets says nothing of its others.
        """
        self._dead = dead
        self._by_field = by_field
        self._modules = list(modules)
        self._trees = list(trees)
        self._skipped = re.compile(skipped) if skipped else None

    def of(self, module: Module, expressions: Iterable[ast.expr]) -> list[Piece] | None:
        """Return the expressions with all that may be behind them; `None` where it is too much."""
        pending: list[Piece] = [(module, node) for node in expressions]
        found: dict[Piece, None] = {}
        while pending:
            piece = pending.pop()
            if piece in found or id(piece[1]) in self._dead:
                continue
            found[piece] = None
            if len(found) > _MAX_PIECES:
                return None
            for node in _own(piece[1]):
                pending.extend(self.behind(piece[0], node))
        return list(found)

    def behind(self, module: Module, node: ast.AST) -> Iterator[Piece]:
        """Yield what a name or field may be: values and functions."""
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if not name or (self._skipped is not None and self._skipped.search(name)):
            return
        if isinstance(node, ast.Name):
            yield from self.of_name(module, node)
        else:
            yield from self._given_to(name)

    def of_name(self, module: Module, node: ast.Name) -> Iterator[Piece]:
        """Yield what a name is bound to: by assignments, by calls of the function around it, or in another module."""
        for scope in self.scopes(module, node):
            given = self._bound(scope).get(node.id, ())
            arguments = scope.args if isinstance(scope, _FUNCTIONS) else None
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)] if arguments else []
            kwonly = [a.arg for a in arguments.kwonlyargs] if arguments else []
            yield from ((module, value) for value in given)
            if node.id in names or node.id in kwonly:
                yield from self._passed(scope, node.id, names)
                return
            if given:
                return
        yield from self._imported(module, node.id)

    def _bound(self, scope: ast.AST) -> dict[str, list[ast.expr | ast.stmt]]:
        known = self._assignments.get(id(scope))
        if known is None:
            known = self._assignments[id(scope)] = _assigned(scope, by_field=self._by_field)
        return known

    def _passed(self, function: ast.AST, name: str, names: list[str]) -> Iterator[Piece]:
        """Yield what calls pass for a parameter."""
        for module, call in self._calls.get(id(function), ()):
            at = names.index(name) if name in names else -1
            if names[:1] in (["self"], ["cls"]):
                at -= 1
            yield from ((module, k.value) for k in call.keywords if k.arg in (name, None))
            if 0 <= at < len(call.args):
                yield module, call.args[at]

    def _imported(self, module: Module, name: str) -> Iterator[Piece]:
        imports = module.nodes_of(ast.ImportFrom)
        for alias in (alias for node in imports for alias in node.names):
            if (alias.asname or alias.name) == name:
                yield from self._given_to(alias.name)

    def scopes(self, module: Module, node: ast.AST) -> list[ast.AST]:
        """Return the functions around a node, innermost first, and the module."""
        found: list[ast.AST] = []
        at = module.parents.get(node)
        while at is not None:
            function = module.function(at)
            found.append(function or module.tree)
            at = module.parents.get(function) if function is not None else None
        return found or [module.tree]

    @cached_property
    def _assignments(self) -> dict[int, dict[str, list[ast.expr | ast.stmt]]]:
        return {}

    @cached_property
    def _calls(self) -> dict[int, list[tuple[Module, ast.Call]]]:
        """Return the calls of each function of the project."""
        found: dict[int, list[tuple[Module, ast.Call]]] = {}
        for tree in self._trees:
            for node in walk(tree):  # type: ignore[arg-type]
                if isinstance(node, Call) and isinstance(node.function, Function) and isinstance(node.node, ast.Call):
                    found.setdefault(id(node.function.node), []).append((node.module, node.node))
        return found

    def _given_to(self, name: str) -> Iterator[Piece]:
        """Yield what fields, options, functions and names of modules of that name are given."""
        for module in self._modules:
            yield from ((module, value) for value in module.once(_values_by_name).get(name, ()))


def _own(piece: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    """Yield the names and fields that a piece reads; of a length it does not matter what is counted."""
    pending: list[ast.AST] = [piece]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            continue
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node
        pending.extend(ast.iter_child_nodes(node))


def _values_by_name(module: Module) -> dict[str, list[ast.expr | ast.stmt]]:
    found: dict[str, list[ast.expr | ast.stmt]] = {}
    for node in module.nodes_of(ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AugAssign, ast.AnnAssign):
        for name, value in _given(node):
            found.setdefault(name, []).append(value)
    return found


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, node
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for inner in (part for target in targets for part in ast.walk(target)):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                yield inner.attr, node.value
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and isinstance(node, ast.AnnAssign):
                yield inner.id, node.value


def _single(target: ast.expr) -> Iterator[ast.expr]:
    """Yield what a target binds one by one: `a, self.b = ...`."""
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _single(part)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _assigned(scope: ast.AST, *, by_field: bool) -> dict[str, list[ast.expr | ast.stmt]]:
    """Return what a scope binds to its names, in the order of its tree: values and functions."""
    found: dict[str, list[ast.expr | ast.stmt]] = {}
    fields = ast.Attribute if by_field else ()
    for node in ast.walk(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not scope:
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            _bind(found, (t for target in targets for t in _single(target) if not isinstance(t, fields)), node.value)
        elif isinstance(node, ast.For):
            _bind(found, [node.target], node.iter)
    return found


def _bind(found: dict[str, list[ast.expr | ast.stmt]], targets: Iterable[ast.expr], value: ast.expr) -> None:
    """Note a value for each name in the targets, once."""
    for name in {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}:
        found.setdefault(name, []).append(value)
