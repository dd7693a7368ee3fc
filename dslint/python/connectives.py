"""`and`, `or` and chains of comparisons: what comes after runs where what came before leads there."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import expressions, formulas, narrowing, presence
from dslint.python.events import Alt, Seq
from dslint.python.machine import Machine
from dslint.python.values import Const, Value


def boolop(m: Machine, node: ast.BoolOp) -> Value:
    """Return the value of `a and b`, `a or b`."""
    found = expressions.evaluate(m, node.values[0])
    for at, operand in enumerate(node.values[1:]):
        if not m.alive:
            return found
        found = _step(m, node, found, node.values[at], operand)
    return found


def _step(m: Machine, node: ast.BoolOp, left: Value, left_node: ast.expr, operand: ast.expr) -> Value:
    """Evaluate one more operand of `and` or `or` where the operands before it lead there."""
    is_and = isinstance(node.op, ast.And)

    def more() -> Value:
        narrowing.narrow(m, left_node, is_and)
        return expressions.evaluate(m, operand)

    return one_more(m, left, left_node, more, operand, is_and=is_and, node=node)


def one_more(
    m: Machine,
    left: Value,
    left_node: ast.expr,
    more: Callable[[], Value],
    operand: ast.expr,
    *,
    is_and: bool,
    node: ast.BoolOp | None = None,
) -> Value:
    """Evaluate `more` where what came before leads there, and return the value of the whole."""
    true, false, varies = presence.truth(m, left_node, left)
    go, stay = (true, false) if is_and else (false, true)
    results: dict[bool, tuple[Value, int]] = {}

    def goes_on() -> None:
        results[True] = (more(), m.lanes)

    def ends() -> None:
        results[False] = (expressions._only(m, left, holds=not is_and), m.lanes)

    alt = Alt(operand, m.frame.module, left, go, stay, varies, Seq(), Seq(), node or left_node)
    expressions._branched(m, alt, goes_on, ends, left.number if is_and else None)
    m.asked = (left_node, left)
    found = expressions._met(m, results, varies, bool(go & stay))
    m.asked = None
    return _with_formula(m, node, (left_node, operand), left, results, found) if node is not None else found


def _with_formula(
    m: Machine, node: ast.BoolOp, sides: tuple[ast.expr, ast.expr], left: Value,
    results: dict[bool, tuple[Value, int]], found: Value,
) -> Value:  # fmt: skip
    """Keep of a test what it is made of: `args.save and rank == 0` is false where its second part is."""
    if len(results) != 2 or isinstance(found.single, Const):
        return found
    right = results[True][0]
    places = [(id(node), m.frame.id, m.turn, at) for at in range(2)]
    parts = [formulas.operand(value, place) for value, place in zip((left, right), places, strict=True)]
    m.placed.update((place, side) for place, side, part in zip(places, sides, parts, strict=True) if part == place)
    number = formulas.joined("and" if isinstance(node.op, ast.And) else "or", parts[0], parts[1])
    return Value(found.atoms, found.varies, found.shape, found.made_by, number, found.origin)
