"""Python's binding rules: which names a function, lambda or comprehension binds, and which are global or nonlocal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

# The fields of statements that hold statements, or handlers and cases that do.
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


@dataclass(slots=True)
class Scope:
    """The names that a body binds, and those that it declares to be somebody else's."""

    locals: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    is_generator: bool = False


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters, `*` and `**` included."""
    names = [p.arg for p in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    names += [p.arg for p in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(arguments.kwarg.arg)
    return names


@lru_cache(maxsize=20_000)
def scope_of(node: FunctionNode) -> Scope:
    """Return the scope of a function or lambda."""
    scope = Scope(set(parameters(node.args)))
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    _collect(body, scope)
    scope.locals -= scope.globals | scope.nonlocals
    return scope


@lru_cache(maxsize=2_000)
def module_scope(tree: ast.Module) -> Scope:
    """Return the names that a module binds, also those that its functions declare to be global."""
    scope = Scope()
    _collect(list(tree.body), scope)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            scope.locals.update(node.names)
    return scope


@lru_cache(maxsize=4_000)
def set_on_self(node: ast.AST) -> tuple[str, ...]:
    """Return the attributes of `self` that a method, or any in a class, sets."""
    stores = (n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return tuple(dict.fromkeys(n.attr for n in stores if isinstance(n.value, ast.Name) and n.value.id == "self"))


def _collect(pending: list[ast.AST], scope: Scope) -> None:
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope.locals.add(node.name)
            pending += node.decorator_list
            if not isinstance(node, ast.ClassDef):
                pending += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
            else:
                pending += node.bases
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, Comprehension):
            # The targets are the comprehension's own; a walrus inside binds outside.
            pending += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            continue
        _bind(node, scope)
        pending += list(ast.iter_child_nodes(node))


def _bind(node: ast.AST, scope: Scope) -> None:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            scope.locals.add(node.id)
    elif isinstance(node, ast.Global):
        scope.globals.update(node.names)
    elif isinstance(node, ast.Nonlocal):
        scope.nonlocals.update(node.names)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            scope.locals.add(alias.asname or alias.name.partition(".")[0])
    elif (isinstance(node, ast.ExceptHandler) and node.name) or (
        isinstance(node, ast.MatchAs | ast.MatchStar) and node.name
    ):
        scope.locals.add(node.name)
    elif isinstance(node, ast.MatchMapping) and node.rest:
        scope.locals.add(node.rest)
    elif isinstance(node, ast.Yield | ast.YieldFrom):
        scope.is_generator = True


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a function or module, and not in functions inside."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, FunctionNode):
            pending.extend(ast.iter_child_nodes(node))


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module in the order of the text, those in blocks and functions too."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        pending += [inner for name in reversed(_BLOCKS) for inner in reversed(getattr(node, name, ()))]
