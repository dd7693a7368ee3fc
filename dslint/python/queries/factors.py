"""What numbers a product is made of, by name: through variables, fields, parameters and conversions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from dslint.python.events import Call, Node, walk
from dslint.python.source import Module
from dslint.python.values import Function

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONVERSIONS = ("int", "float", "round")
_DEEPEST = 6


class Factors:
    """The factors of expressions in the modules and calls of one run."""

    def __init__(self, modules: Iterable[Module], trees: Iterable[Node]) -> None:
        """Look for definitions in these modules, and for calls in these trees."""
        self._modules = list(modules)
        self._trees = list(trees)

    def of(self, module: Module, node: ast.AST, depth: int = 0) -> list[str]:
        """Return the factors of an expression in order; what has no single definition keeps its last name."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONVERSIONS:
            return self.of(module, node.args[0], depth) if len(node.args) == 1 else [ast.unparse(node)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return sorted([*self.of(module, node.left, depth), *self.of(module, node.right, depth)])
        if isinstance(node, ast.Constant):
            return [] if node.value == 1 else [repr(node.value)]
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return [str(node.slice.value)]
        if isinstance(node, ast.Name | ast.Attribute):
            defined = self._definition(module, node) if depth < _DEEPEST else None
            if defined is not None:
                return self.of(*defined, depth + 1)
            return [node.id if isinstance(node, ast.Name) else node.attr]
        return [ast.unparse(node)]

    def _definition(self, module: Module, node: ast.Name | ast.Attribute) -> tuple[Module, ast.AST] | None:
        """Return the only expression that a name or field is given."""
        if isinstance(node, ast.Attribute):
            found = self._fields.get(node.attr, [])
            return found[0] if len(found) == 1 else None
        scope = self._scope(module, node)
        given = list(_assigned(scope, node.id))
        if len(given) == 1 and not _is_parameter(scope, node.id):
            return module, given[0]
        if given or not _is_parameter(scope, node.id):
            return None
        passed = list(self._passed(scope, node.id))
        return passed[0] if len(passed) == 1 else None

    def _scope(self, module: Module, node: ast.AST) -> ast.AST:
        """Return the innermost function around a node that binds the name, or the module."""
        line = getattr(node, "lineno", 0)
        name = getattr(node, "id", "")
        around = [inner for inner in module.functions if inner.lineno <= line <= (inner.end_lineno or 0)]
        for scope in sorted(around, key=lambda inner: -inner.lineno):
            if _is_parameter(scope, name) or any(True for _ in _assigned(scope, name)):
                return scope
        return module.tree

    def _passed(self, scope: ast.AST, name: str) -> Iterator[tuple[Module, ast.AST]]:
        names = [arg.arg for arg in (*scope.args.posonlyargs, *scope.args.args)]  # type: ignore[attr-defined]
        for module, call in self._calls.get(id(scope), {}).values():
            at = names.index(name) if name in names else -1
            at -= names[:1] in (["self"], ["cls"])
            keyword = next((k.value for k in call.keywords if k.arg == name), None)
            if keyword is not None:
                yield module, keyword
            elif 0 <= at < len(call.args):
                yield module, call.args[at]

    @cached_property
    def _calls(self) -> dict[int, dict[int, tuple[Module, ast.Call]]]:
        found: dict[int, dict[int, tuple[Module, ast.Call]]] = {}
        for tree in self._trees:
            for node in walk(tree):
                if isinstance(node, Call) and isinstance(node.function, Function) and isinstance(node.node, ast.Call):
                    found.setdefault(id(node.function.node), {})[id(node.node)] = (node.module, node.node)
        return found

    @cached_property
    def _fields(self) -> dict[str, list[tuple[Module, ast.AST]]]:
        """Return what fields are assigned, and what properties of one line give."""
        found: dict[str, list[tuple[Module, ast.AST]]] = {}
        for module in self._modules:
            for node in module.nodes:
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        if isinstance(target, ast.Attribute):
                            found.setdefault(target.attr, []).append((module, node.value))
                elif isinstance(node, ast.FunctionDef) and node.decorator_list:
                    last = node.body[-1]
                    if isinstance(last, ast.Return) and last.value is not None and _is_property(node):
                        found.setdefault(node.name, []).append((module, last.value))
        return found


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_parameter(scope: ast.AST, name: str) -> bool:
    arguments = scope.args if isinstance(scope, _FUNCTIONS) else None
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if arguments is not None else ()
    return any(arg.arg == name for arg in every)


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield what is assigned to a name in a scope; of what is unpacked or counted the statement."""
    for node in ast.walk(scope):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name and isinstance(node, ast.Assign | ast.AnnAssign):
                if node.value is not None:
                    yield node.value
            elif not isinstance(target, ast.Subscript | ast.Attribute) and any(
                isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(target)
            ):
                yield node
