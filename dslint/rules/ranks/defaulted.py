"""Arms for callers that leave an argument out: ``results = self.gather() if results is None else results``.

And arms to which no command line leads, since the option that they ask for has a default: ``if args.steps is None``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.names import names_of
from dslint.python.source import Module

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

# Names and words around the test of a field that are looked through.
_MOST_STEPS = 6


def left_out(module: Module, node: ast.AST) -> str:
    """Return the parameter without which a node runs, if its default is ``None`` and no call of the file leaves it out.

    Callers in other files may hand it over each time, so that nobody knows whether the node runs. Empty otherwise.
    """
    line = getattr(node, "lineno", 0)
    around = [f for f in module.functions if f.lineno <= line <= (f.end_lineno or 0)]
    if not around:
        return ""
    function = max(around, key=lambda f: f.lineno)
    places = _optional(function)
    for name in (name for name in _asked(function, node) if name in places):
        calls = [c for c in module.nodes_of(ast.Call) if _last(c.func) == function.name]
        if all(_hands_over(call, name, places[name]) for call in calls):
            return name
    return ""


def dead_by_default(run: RunQuery) -> frozenset[int]:
    """Return the nodes (their ids) that run only where an option is `None` or empty whose default is not."""
    defaults: dict[str, list[object]] = {}
    for number, value in run.machine.defaults.items():
        if isinstance(number, tuple) and number[0] == "option":
            defaults.setdefault(str(number[2]), []).extend(value.constants or (None,))
    given = {name for name, found in defaults.items() if all(found)}
    modules = run.machine.program.modules() if given else []
    tests = [(module, node) for module in modules for node in module.nodes if isinstance(node, ast.If | ast.IfExp)]
    sides = [(node, *_asked_field(module, node.test)) for module, node in tests]
    dead = _inside((node, lacks) for node, name, lacks in sides if name in given)
    flags = _flags(run, dead) if dead else set()
    return dead | _inside((n, True) for _, n in tests if isinstance(n.test, ast.Name) and n.test.id in flags)


def _inside(tests: Iterator[tuple[ast.If | ast.IfExp, bool]]) -> frozenset[int]:
    """Return the nodes of one side of each test: of the first where `True` stands beside it."""
    sides = [node.body if is_first else node.orelse for node, is_first in tests]
    parts = [part for side in sides for part in (side if isinstance(side, list) else [side])]
    return frozenset(id(inner) for part in parts for inner in ast.walk(part))


def _flags(run: RunQuery, dead: frozenset[int]) -> set[str]:
    """Return the names that only dead code sets: `is_overridden = True` there, and `False` elsewhere."""
    alive: dict[str, list[bool]] = {}
    for module in run.machine.program.modules():
        for node in module.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                is_off = isinstance(node.value, ast.Constant) and not node.value.value
                alive.setdefault(node.targets[0].id, []).append(is_off or id(node) in dead)
    return {name for name, off in alive.items() if all(off)}


def _asked_field(module: Module, test: ast.expr) -> tuple[str, bool]:
    """Return the field that a test asks for, and whether it asks that there is nothing: `not args.steps`.

    The test may have a name: `is_open = args.steps is None`.
    """
    lacks = False
    for _ in range(_MOST_STEPS):
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, lacks = test.operand, not lacks
        elif isinstance(test, ast.NamedExpr):
            test = test.value
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            is_equal, constant = isinstance(test.ops[0], ast.Is | ast.Eq), test.comparators[0].value
            if constant is None:
                return (test.left.attr, lacks is not is_equal) if isinstance(test.left, ast.Attribute) else ("", False)
            if constant is not True:
                break
            test, lacks = test.left, lacks is is_equal
        elif isinstance(test, ast.Name) and (written := names_of(module.tree).single(test)) is not None:
            test = written
        else:
            break
    return (test.attr, lacks) if isinstance(test, ast.Attribute) else ("", False)


def _optional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    """Return the parameters whose default is ``None``, with their position among those of a call (without ``self``)."""
    given = [*function.args.posonlyargs, *function.args.args]
    skipped = 1 if given and given[0].arg in ("self", "cls") else 0
    last = given[len(given) - len(function.args.defaults) :]
    found = {p.arg: given.index(p) - skipped for p, d in zip(last, function.args.defaults, strict=True) if _is_none(d)}
    only = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {**found, **{p.arg: -1 for p, default in only if _is_none(default)}}


def _asked(function: ast.AST, node: ast.AST) -> Iterator[str]:
    """Yield the names that are ``None`` where a node runs, by the tests around it."""
    for test in ast.walk(function):
        if not isinstance(test, ast.If | ast.IfExp) or not isinstance(test.test, ast.Compare):
            continue
        left, operator, right = test.test.left, test.test.ops[0], test.test.comparators[0]
        if isinstance(left, ast.Name) and _is_none(right) and isinstance(operator, ast.Is | ast.IsNot):
            arm = test.body if isinstance(operator, ast.Is) else test.orelse
            parts = arm if isinstance(arm, list) else [arm]
            if any(inner is node for part in parts for inner in ast.walk(part)):
                yield left.id


def _hands_over(call: ast.Call, name: str, position: int) -> bool:
    is_open = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg in (None, name) for k in call.keywords)
    return is_open or 0 <= position < len(call.args)


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _last(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
