"""Cheap looks at the standard library's syntax tree: can a rule about collectives fire on this file at all?

They may say yes too often, never no wrongly for the patterns that the full analysis knows.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from dslint.model.script.collective.vocabulary import (
    MAIN_DECORATORS,
    OTHER_DECORATORS,
)
from dslint.model.script.marked import (
    FUNCTIONS,
    Function,
    Marked,
    Ranks,
    Waiting,
    defined,
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
