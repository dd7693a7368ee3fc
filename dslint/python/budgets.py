"""Budgets: how much effort an entry and each call in it may take, and what is left of a call that takes more.

A call that runs out of its budget ends where it is: what it did so far stays, what it may still have written is lost,
and its caller goes on. A call of functions in which nothing concerns other ranks gets little; its result is then that
of code without a model. Near the entry, where training loops are, a function whose calls have taken its whole budget
is read to its end all the same; what it calls on this rest of the way gets little.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python.binding import Arguments
from dslint.python.escapes import escape, lose_names, lose_written
from dslint.python.events import Call, Lost, Seq
from dslint.python.heap import UNFINISHED, Frame, OutOfBudgetError
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.scopes import set_on_self
from dslint.python.source import Module
from dslint.python.store import Key
from dslint.python.values import LOST_VALUE, OPAQUE, Function, Instance, Unknown, Value, one
from dslint.python.varies import LOST, UNMODELLED

# Steps of the body of a module; those of scripts and open functions depend on what is asked (`questions.py`).
MODULE = 3_000
# A call may take what its caller has left, divided among the calls that come after it, and this much at least ...
_SHARE, _FAIR, _SMALLEST, _LEAST = 0.95, 0.5, 0.3, 600
# So many frames above that of the entry go on, for so many steps a line and not more than this; their calls get little.
_NEAR, _A_LINE, _MOST, _LITTLE = 3, 15, 4_000, 100


def within(m: Machine, function: Function, arguments: Arguments, node: ast.AST, run: Callable[[], Value]) -> Value:
    """Run a call with a budget of its own."""
    outer = m.limit
    matters = m.program.relevance(m).of(function.node, function.module)
    m.limit = min(outer, m.steps + _share(m, function, node, matters))
    frame, events, control, lanes, path = m.frame, m.events, m.control, m.lanes, m.path
    recorder, split, tries, mark = m.recorder, m.split, len(m.tries), m.store.mark()
    m.partial = []
    try:
        return run()
    except OutOfBudgetError:
        if m.steps > outer:
            if not goes_on(m, frame):
                raise
            outer = m.limit
        m.frame, m.events, m.control, m.lanes, m.path = frame, events, control, lanes, path
        m.recorder, m.split, m.alive = recorder, split, True
        del m.tries[tries:]
        m.program.costly[id(function.node)] = m.program.costly.get(id(function.node), 0) + 1
        return _left(m, function, arguments, node, mark, matters)
    finally:
        m.limit = outer


def goes_on(m: Machine, frame: Frame) -> bool:
    """Let the own code of a frame near the entry of a script go on, once, and return whether it does."""
    # A generator takes its steps out of the budget of the one who iterates.
    while (frame.is_comprehension or frame.on_yield is not None) and frame.parent is not None:
        frame = frame.parent
    node = frame.function.node if frame.function is not None else frame.module.tree
    gone_on = m.program.gone_on
    if gone_on is None or frame.goes_on or id(node) in gone_on or frame.depth > _NEAR:
        return False
    if frame.function is not None and not m.program.relevance(m).of(node, frame.module):
        return False
    frame.goes_on = True
    gone_on.add(id(node))
    m.limit = m.steps + min(_A_LINE * _lines(node), _MOST)
    return True


def _lines(node: ast.AST) -> int:
    if isinstance(node, ast.Module):
        return (node.body[-1].end_lineno or 0) if node.body else 0
    return (getattr(node, "end_lineno", None) or 0) - getattr(node, "lineno", 0) + 1


def _share(m: Machine, function: Function, node: ast.AST, matters: bool) -> int:
    """Return the steps that a call may take; less each time that calls of the function took too many."""
    if m.frame.goes_on:
        return _LITTLE
    often = m.program.costly.get(id(function.node), 0)
    if not matters:
        return m.program.effort.aside >> min(2 * often, 6)
    later = m.program.relevance(m).later(*_caller(m), node)
    part = max(1 / (1 + _FAIR * later), _SMALLEST) * _SHARE
    return max(int((m.limit - m.steps) * part) >> min(2 * often, 6), _LEAST)


def _caller(m: Machine) -> tuple[ast.AST, Module]:
    function = m.frame.function
    return (function.node, function.module) if function is not None else (m.frame.module.tree, m.frame.module)


def _left(m: Machine, function: Function, arguments: Arguments, node: ast.AST, mark: int, matters: bool) -> Value:
    """Return what is known of a call that was given up, and make what it may have written lost."""
    m.lost[UNFINISHED] = m.lost.get(UNFINISHED, 0) + 1
    changes = m.store.changes(mark)
    m.store.undo(mark)
    kind = LOST_VALUE if matters else OPAQUE
    unread = Value(frozenset((Unknown(kind, UNFINISHED),)), LOST if matters else UNMODELLED)
    for key, value in changes.items():
        if not isinstance(key[0], int) or key[0] in m.program.module_frames:
            m.store.set(key, _after(m, key, value, unread))
    if m.keeps_configs:
        lose_written(m, list(changes))
        lose_names(m)
    _fields(m, function, arguments, unread)
    for operand in arguments.all():
        escape(m, operand)
    if matters:
        m.events.append(Call(node, m.frame.module, function, Seq([*m.partial, Lost(UNFINISHED, node)])))
        made_by = frozenset().union(*map(m.made_by, arguments.all()))
        return one(Unknown(LOST_VALUE, UNFINISHED), LOST, LOST, made_by)
    return m.thing(node, UNFINISHED, arguments.all(), varies=UNMODELLED)


def _after(m: Machine, key: Key, value: Value, unread: Value) -> Value:
    """Return what a cell may hold after a call that wrote `value` and was not read to its end."""
    old = m.store.peek(key)
    if old is None or not isinstance(key[1], str) or key[1].startswith("#"):
        return value
    return join(join(old, value), unread)


def _fields(m: Machine, function: Function, arguments: Arguments, unread: Value) -> None:
    """Make the attributes of `self` unknown that the rest of a method sets, perhaps anew."""
    receiver = arguments.positional[0].single if arguments.positional and function.owner is not None else None
    if isinstance(receiver, Instance):
        for name in set_on_self(function.node):
            old = m.store.peek((receiver, name))
            m.store.set((receiver, name), unread if old is None else join(old, unread))
