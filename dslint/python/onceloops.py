"""Loops that are run turn by turn: their statements do the same without the loop.

Those whose body runs once and to its end, those over few known items where dictionaries matter, and those over known
items that add options to a parser of a command line.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dslint.python import dictionaries
from dslint.python.heap import REST, Frame, LoopState, Outcome
from dslint.python.machine import Machine
from dslint.python.values import Const, Instance, Tuple, Value, const, one

# A loop over so few items is run turn by turn where dictionaries matter, and over so many where options are added.
_FEW_TURNS, _MOST_TURNS = 8, 64
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
    frame.turn = m.context((frame.id, outer, id(node), "turn", at))
    m.turn += 1


def ran_in_turns(m: Machine, node: ast.For | ast.AsyncFor, items: list[Value] | None) -> bool:
    """Run a `for` statement over few known items turn by turn; return whether it is such a one."""
    from dslint.python.statements import assign, execute

    if not m.keeps_configs or not items or len(items) > _FEW_TURNS or _jumps(node.body):
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


def ran_over_keys(m: Machine, node: ast.For | ast.AsyncFor) -> bool:
    """Run `for k in d: d[k] = f(d[k])` over few known keys turn by turn; return whether it is such a statement."""
    from dslint.python.expressions import evaluate
    from dslint.python.statements import assign, execute

    over, is_pair = _dictionary(node.iter)
    key = node.target.elts[0] if is_pair and isinstance(node.target, ast.Tuple) else node.target
    if over is None or not isinstance(key, ast.Name) or not _replaces(node.body, over, key.id) or node.orelse:
        return False
    atom = evaluate(m, over).single
    if not isinstance(atom, Instance) or atom.cls != "builtins.dict" or not dictionaries.is_ordered(m, atom):
        return False
    keys, rest = dictionaries.known_keys(m, atom), m.store.get((atom, REST))
    is_open = rest is not None and rest.atoms
    if is_open or not 1 < len(keys) <= _FEW_TURNS or any(dictionaries.may_lack(m, atom, each) for each in keys):
        return False
    frame, outer = m.frame, m.frame.turn
    for at, each in enumerate(map(const, keys)):
        in_turn(m, frame, node, at, outer)
        if m.alive:
            value = one(Tuple((each, dictionaries.item_of(m, atom, each, node)))) if is_pair else each
            assign(m, node.target, value, node.target)
            execute(m, node.body)
    frame.turn = outer
    return True


def _dictionary(over: ast.expr) -> tuple[ast.expr | None, bool]:
    """Return the dictionary that a loop goes through, and whether it gives pairs."""
    if isinstance(over, ast.Call) and getattr(over.func, "id", "") == "list" and len(over.args) == 1:
        over = over.args[0]
    is_pair = False
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
        is_pair = over.func.attr == "items"
        over = over.func.value if is_pair or over.func.attr == "keys" else over
    return (over if isinstance(over, ast.Name | ast.Attribute) else None), is_pair


def _replaces(body: Sequence[ast.stmt], over: ast.expr, key: str) -> bool:
    """Return whether simple statements replace the item that a loop over a dictionary has reached."""
    if _jumps(body) or any(isinstance(inner, _INNER) for part in body for inner in ast.walk(part)):
        return False
    targets = [part.targets[0] for part in body if isinstance(part, ast.Assign) and len(part.targets) == 1]
    return any(ast.unparse(target) == f"{ast.unparse(over)}[{key}]" for target in targets)


def ran_each(m: Machine, node: ast.For | ast.AsyncFor, items: list[Value] | None) -> bool:
    """Run a `for` statement over known items turn by turn where its body may add options to a parser."""
    if items is None or len(items) > _MOST_TURNS or _breaks(node.body):
        return False
    if not m.program.relevance(m).adds_options(node, m.frame.module):
        return False
    number = m.new_loop(node)
    frame, outer = m.frame, m.frame.turn
    try:
        return _run_each(m, node, items, number, outer)
    finally:
        frame.turn = outer


def _run_each(m: Machine, node: ast.For | ast.AsyncFor, items: list[Value], number: int, outer: int) -> bool:
    from dslint.python.statements import assign, execute

    frame = m.frame
    for at, item in enumerate(items):
        # What a turn makes (the parser of a command) is its own.
        frame.turn = m.context((frame.id, outer, id(node), "turn", at))
        m.turn += 1
        mark, lanes, control = m.store.mark(), m.lanes, m.control
        state = LoopState(mark, number)
        m.frame.loops.append(state)
        assign(m, node.target, item, node.target)
        if m.alive:
            execute(m, node.body)
        m.frame.loops.pop()
        if state.continues:
            ways = [*state.continues, *([Outcome(m.store.changes(mark), m.lanes, m.control)] if m.alive else [])]
            m.store.undo(mark)
            m.meet(ways, 0)
            m.lanes, m.control = lanes, control
        if not m.alive:
            return True
    frame.turn = outer
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


def _breaks(body: Sequence[ast.AST]) -> bool:
    """Return whether a `break` of the loop itself stands among statements."""
    return _jumps(body, (ast.Break,))


def _jumps(body: Sequence[ast.AST], kinds: tuple[type[ast.AST], ...] = (ast.Break, ast.Continue)) -> bool:
    """Return whether a `break` or `continue` of the loop itself stands among statements."""
    for node in body:
        if isinstance(node, kinds):
            return True
        inner = node.orelse if isinstance(node, _INNER) else list(ast.iter_child_nodes(node))
        is_block = isinstance(node, ast.stmt | ast.excepthandler | ast.match_case) and not isinstance(node, _APART)
        if is_block and _jumps(inner, kinds):
            return True
    return False
