"""Loops whose body runs once and to its end, or a few known times: their statements do the same without the loop."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dslint.python.heap import Frame
from dslint.python.machine import Machine
from dslint.python.values import Const, Value

# A loop over so few items is run turn by turn where dictionaries matter.
_MOST_TURNS = 8
_INNER = (ast.For, ast.AsyncFor, ast.While)
_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def ran_once(m: Machine, node: ast.For | ast.AsyncFor, items: list[Value] | None) -> bool:
    """Run a `for` statement over one number or text as the statements that it holds; return whether it is such a one.

    A list of one tensor stands for a loader in a script that shows something: that is a loop.
    """
    from dslint.python.statements import assign, execute

    if items is None or len(items) != 1 or not isinstance(items[0].single, Const) or _jumps(node.body):
        return False
    assign(m, node.target, items[0])
    for part in (node.body, node.orelse):
        if m.alive:
            execute(m, part)
    return True


def in_turn(m: Machine, frame: Frame, node: ast.AST, at: int, outer: int = 0) -> None:
    """Let what a frame makes from here on be objects of one turn of a loop."""
    if m.keeps_configs:
        frame.turn = m.context((frame.id, outer, id(node), "turn", at))
        m.turn += 1


def ran_in_turns(m: Machine, node: ast.For | ast.AsyncFor, items: list[Value] | None) -> bool:
    """Run a `for` statement over few known items turn by turn; return whether it is such a one."""
    from dslint.python.statements import assign, execute

    if not m.keeps_configs or not items or len(items) > _MOST_TURNS or _jumps(node.body):
        return False
    frame, outer = m.frame, m.frame.turn
    for at, item in enumerate(items):
        in_turn(m, frame, node, at, outer)
        if m.alive:
            assign(m, node.target, item, node.target)
            execute(m, node.body)
    frame.turn = outer
    if m.alive:
        execute(m, node.orelse)
    return True


def ran_to_break(m: Machine, node: ast.While) -> bool:
    """Run `while True: ...; break` as the statements that it holds; return whether it is such a loop."""
    from dslint.python.statements import execute

    *body, last = node.body
    if not isinstance(last, ast.Break) or _jumps(body):
        return False
    execute(m, body)
    return True


def _jumps(body: Sequence[ast.AST]) -> bool:
    """Return whether a `break` or `continue` of the loop itself stands among statements."""
    for node in body:
        if isinstance(node, ast.Break | ast.Continue):
            return True
        inner = node.orelse if isinstance(node, _INNER) else list(ast.iter_child_nodes(node))
        is_block = isinstance(node, ast.stmt | ast.excepthandler | ast.match_case) and not isinstance(node, _APART)
        if is_block and _jumps(inner):
            return True
    return False
