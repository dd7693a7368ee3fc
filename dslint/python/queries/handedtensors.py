"""From which calls the tensors come that a block is handed: through loops, comprehensions, names and parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Call
from dslint.python.scopes import own_nodes
from dslint.python.source import Module
from dslint.python.values import Function

_MAX_STEPS = 30
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What hands on the elements of its first argument, or of its receiver.
_KEEPS = frozenset({"list", "tuple", "sorted", "dict", "iter", "tqdm", "OrderedDict", "enumerate", "reversed"})
_PARTS = frozenset({"items", "values", "copy"})
_DETOURS = frozenset({"detach", "cpu", "cuda", "to", "clone"})


@dataclass(frozen=True, slots=True)
class Spot:
    """A function whose code is read, with the calls through which it was entered, innermost first."""

    module: Module
    scope: ast.AST
    calls: tuple[Call, ...] = ()


def spot_of(module: Module, entry: ast.AST, calls: tuple[Call, ...]) -> Spot:
    """Return the function in which something happens; `calls` lead there, outermost first."""
    inner = calls[-1].function if calls else None
    return Spot(module, inner.node if isinstance(inner, Function) else entry, calls[::-1])


def origins(node: ast.expr, spot: Spot) -> list[ast.Call] | None:
    """Return the calls that have made the tensors of an expression; `None` where that is not known of all."""
    found: list[ast.Call] = []
    pending, seen = [(node, spot)], set[tuple[int, int]]()
    while pending:
        part, here = pending.pop()
        key = (id(part), len(here.calls))
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > _MAX_STEPS:
            return None
        if _is_end(part):
            found.append(part)  # type: ignore[arg-type]
            continue
        behind = list(_behind(part, here))
        if not behind:
            return None
        pending += behind
    return found


def _is_end(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _handed_on(node) is None


def _handed_on(node: ast.Call) -> ast.expr | None:
    """Return what a call only hands on: of `list(x)`, `x.items()` and `x.detach()`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _PARTS | _DETOURS:
        return node.func.value
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return node.args[0] if name in _KEEPS and node.args else None


def _behind(node: ast.expr, here: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """Yield what an expression takes its tensors from."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield from ((part, here) for part in node.elts)
    elif isinstance(node, ast.Starred | ast.Subscript):
        yield node.value, here
    elif isinstance(node, ast.IfExp):
        yield from ((node.body, here), (node.orelse, here))
    elif isinstance(node, ast.Call):
        inner = _handed_on(node)
        yield from ((inner, here),) if inner is not None else ()
    elif isinstance(node, _COMPREHENSIONS):
        yield node.value if isinstance(node, ast.DictComp) else node.elt, here
    elif isinstance(node, ast.Name):
        yield from _of_name(node, here)


def _of_name(node: ast.Name, here: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """Yield what a name is given: by the comprehension or loop around it, assignments, or the call of the function."""
    for outer in _around(node, here.scope):
        for part in outer.generators:
            if _binds(part.target, node.id):
                yield part.iter, here
                return
    given = [value for value in _given(here.scope, node.id) if value.lineno <= node.lineno]
    yield from ((value, here) for value in given)
    if here.calls:
        yield from _passed(node.id, here)


def _around(node: ast.AST, scope: ast.AST) -> list[ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp]:
    """Return the comprehensions around a node, innermost first."""
    found = [c for c in ast.walk(scope) if isinstance(c, _COMPREHENSIONS) and any(n is node for n in ast.walk(c))]
    inner = [c for c in found if not any(n is node for g in c.generators[:1] for n in ast.walk(g.iter))]
    return inner[::-1]


def _binds(target: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(target))


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what a function binds to a name, and what it puts into the container of that name."""
    for node in own_nodes(scope):
        if isinstance(node, ast.For) and _binds(node.target, name):
            yield node.iter
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                is_item = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
                named = target.value if is_item and isinstance(target, ast.Subscript) else target
                if isinstance(named, ast.Name) and named.id == name and not _is_empty(node.value):
                    yield node.value


def _is_empty(node: ast.expr) -> bool:
    return (isinstance(node, ast.Dict) and not node.keys) or (isinstance(node, ast.List) and not node.elts)


def _passed(name: str, here: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """Yield what the call of the function passes for a parameter."""
    call, arguments = here.calls[0], getattr(here.scope, "args", None)
    if (
        arguments is None
        or not isinstance(call.node, ast.Call)
        or any(isinstance(a, ast.Starred) for a in call.node.args)
    ):
        return
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    is_method = names[:1] in (["self"], ["cls"])
    at = names.index(name) - is_method if name in names else -1
    outer = here.calls[1].function if len(here.calls) > 1 else None
    scope = outer.node if isinstance(outer, Function) else call.module.tree
    spot = Spot(call.module, scope, here.calls[1:])
    if 0 <= at < len(call.node.args):
        yield call.node.args[at], spot
    yield from ((k.value, spot) for k in call.node.keywords if k.arg == name)
