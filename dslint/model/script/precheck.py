"""Cheap looks at the standard library's syntax tree: can a rule about collectives fire on this file at all?

They may say yes too often, never no wrongly for the patterns that the full analysis knows.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from functools import lru_cache
from itertools import compress

from dslint.model.script.collective.vocabulary import (
    MAIN_DECORATORS,
    OTHER_DECORATORS,
)
from dslint.model.script.marked import (
    FUNCTIONS,
    Calls,
    Function,
    Marked,
    Ranks,
    Waiting,
    defined,
    exchanges,
    may_wait,
    name_of,
    ranks_of,
)
from dslint.model.script.quick import Flat, call_name, flat

_EXITS = frozenset({"exit", "_exit", "quit"})


@lru_cache(maxsize=4)
def has_guarded_collective(tree: ast.Module, imported: frozenset[str] = frozenset()) -> bool:
    """Some collective, or a function that holds one, may stand behind a rank test.

    ``imported``: names under which something of another file may be called that waits. Several rules ask the same.
    """
    waiting = Waiting(flat(tree), imported)
    return waiting.any() and _has_guarded(waiting)


@lru_cache(maxsize=1)
def guards_any_call(tree: ast.Module) -> bool:
    """Some call at all may stand behind a rank test: only then does it matter what imported functions do."""
    nodes = flat(tree)
    calls = Marked(nodes)
    calls.add(nodes.places(ast.Call))
    return _has_guarded(calls)


def skipping_tests(tree: ast.Module) -> list[ast.If | ast.While]:
    """The tests that decide, within their function, whether something runs that waits for other ranks."""
    nodes = flat(tree)
    tests: list[ast.If | ast.While] = [*nodes.nodes(ast.If), *nodes.nodes(ast.While)]
    tests.sort(key=lambda n: (n.lineno, n.col_offset))
    return list(compress(tests, skips(tree)))


@lru_cache(maxsize=4)
def skips(tree: ast.Module) -> tuple[bool, ...]:
    """Whether an ``if`` or ``while`` of a module does so, for each of them in source order; empty where nothing waits.

    A plain ``loss.backward()`` waits where the file has a model that exchanges gradients.
    """
    nodes = flat(tree)
    has_backward = any(call_name(n) == "backward" for n in nodes.nodes(ast.Call))
    is_exchanged = has_backward and exchanges(nodes, {"prepare", "prepare_model"})

    def waits(call: ast.Call, name: str, holders: Set[str]) -> bool:
        return may_wait(call, name, holders) or (is_exchanged and name == "backward")

    waiting = Waiting(nodes, calls=Calls(nodes, waits))
    if not waiting.any():
        return ()
    leaving = Marked(nodes)
    leaving.add(nodes.place(n) for n in nodes.nodes(ast.Call) if call_name(n) in _EXITS)
    leaving.add(nodes.places(ast.Raise))
    leaving.add_callers()
    leaving.add(nodes.places(ast.Return, ast.Break, ast.Continue))
    tests = [
        (node.lineno, node.col_offset, nodes.place(node)) for node in (*nodes.nodes(ast.If), *nodes.nodes(ast.While))
    ]
    return tuple(waiting.inside(at) or (leaving.inside(at) and waiting.around(at)) for _, _, at in sorted(tests))


def _has_guarded(marked: Marked) -> bool:
    """A marked call may stand behind a rank test."""
    nodes = marked.nodes
    ranks = ranks_of(nodes)
    for at in nodes.places(ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Match):
        node = nodes.order[at]
        test = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
        test = node.subject if isinstance(node, ast.Match) else test
        # What ends the process matters to those that call the function, too.
        if not (marked.inside(at) or (_ends_early(node) and (_may_exit(node) or marked.around(at)))):
            if not (isinstance(node, ast.If) and marked.around(at)):
                continue
            if not (ranks.inside(nodes.place(test)) and _leaves_within(nodes, at)):
                continue
        if ranks.inside(nodes.place(test)):
            return True
    wrapping = _wrapping(nodes, ranks)
    return any(
        marked.inside(at) and (_is_main_only(node) or any(name_of(d) in wrapping for d in node.decorator_list))
        for at in nodes.places(*FUNCTIONS)
        if isinstance(node := nodes.order[at], Function)
    )


def _wrapping(nodes: Flat, ranks: Ranks) -> set[str]:
    """Functions that hold a function with a rank test: decorators of the file that let some ranks in."""
    found = set()
    for at in nodes.places(*FUNCTIONS):
        inside = nodes.order[at + 1 : nodes.ends[at]]
        if ranks.inside(at) and any(isinstance(n, Function) for n in inside):
            found.add(defined(nodes.order[at]))
    return found


def _is_main_only(function: Function) -> bool:
    return any(name_of(decorator) in (MAIN_DECORATORS | OTHER_DECORATORS) for decorator in function.decorator_list)


def _ends_early(node: ast.AST) -> bool:
    bodies = (node.body, node.orelse) if isinstance(node, ast.If) else ()
    return any(
        b and isinstance(b[-1], ast.Return | ast.Continue | ast.Break | ast.Expr | ast.Raise) and _exits(b[-1])
        for b in bodies
    )


def _leaves_within(nodes: Flat, at: int) -> bool:
    """Behind a further test in an arm: ``if rank == 0: ...`` with ``if failed: return``."""
    inside = nodes.order[at : nodes.ends[at]]
    return any(isinstance(n, ast.Return | ast.Continue | ast.Break) for n in inside)


def _may_exit(node: ast.AST) -> bool:
    """More than the function ends in an arm: ``sys.exit()``, ``raise SystemExit``."""
    bodies = (node.body, node.orelse) if isinstance(node, ast.If) else ()
    return any(isinstance(b[-1], ast.Expr | ast.Raise) for b in bodies if b)


def _exits(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and call_name(statement.value) in _EXITS
    return True
