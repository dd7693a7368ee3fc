"""Activations of project functions: parameters, bodies and ways out."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache

from dslint.python import configdicts, containers, dictionaries, writing
from dslint.python.binding import Arguments, annotation_of, bind, default_of
from dslint.python.budgets import within
from dslint.python.escapes import escape, lose_names
from dslint.python.events import Alt, Call, Exit, Node, Seq
from dslint.python.heap import Choice, Frame, Outcome, OutOfBudgetError
from dslint.python.joins import join, widened
from dslint.python.machine import Machine
from dslint.python.misfits import note_function
from dslint.python.scopes import scope_of
from dslint.python.source import Module
from dslint.python.summaries import summarized
from dslint.python.values import (
    INPUT,
    NOTHING,
    OPAQUE,
    ClassAtom,
    Function,
    Instance,
    Tuple,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import LOST, OWN, RANKED


def call_function(
    m: Machine,
    function: Function,
    arguments: Arguments | list[Value],
    node: ast.AST,
    owner: ClassAtom | None = None,
    on_yield: Callable[[Value], None] | None = None,
) -> Value:
    """Interpret a function of the project for these arguments."""
    if isinstance(arguments, list):
        arguments = Arguments(arguments)
    if arguments.written and on_yield is None:
        note_function(m, function, arguments, node)
    scope = scope_of(function.node)
    if scope.is_generator and on_yield is None:
        from dslint.python.generators import new_generator

        return new_generator(m, function, arguments, node, owner)
    if m.program.noted.runs_on:
        from dslint.python.restrictions import restricted

        found = restricted(m, function, arguments, node, owner, on_yield)
        if found is not None:
            return found
    reason = _refused(m, function)
    if reason:
        for operand in arguments.all():
            escape(m, operand)
        if m.keeps_configs:
            lose_names(m)
        return m.gives_up(node, reason)
    if on_yield is not None:
        frame = enter(m, function, arguments, node, owner)
        frame.on_yield = on_yield
        result = run_frame(m, frame, node)
        m.yielded_by = frame.yielded_by
        return result
    given = arguments

    def run() -> Value:
        return within(m, function, given, node, lambda: run_frame(m, enter(m, function, given, node, owner), node))

    return summarized(m, function, given, node, run)


def _refused(m: Machine, function: Function) -> str:
    depth = same = 0
    frame: Frame | None = m.frame
    while frame is not None:
        depth += 1
        if frame.function is not None and frame.function.node is function.node:
            same += 1
        frame = frame.parent
    if same >= 2:
        return "recursion"
    return "depth of calls" if depth > m.max_depth else ""


def enter(m: Machine, function: Function, arguments: Arguments, node: ast.AST, owner: ClassAtom | None) -> Frame:
    """Return the frame of a call with its parameters bound; nothing of the body has run."""
    caller = m.frame
    module = function.module
    number = m.context((caller.turn or caller.id, id(node), id(function.node)))
    frame = Frame(
        number, module, m.program.frame_of(m, module), caller, function, scope_of(function.node), function.frames
    )
    frame.mark = m.store.mark()
    frame.owner = owner or function.owner
    frame.call = node
    parameters = function.node.args
    bound = bind(parameters, arguments)
    for name in scope_of(function.node).locals:
        # A frame of the same call before this one leaves nothing behind.
        if (number, name) in m.store.cells:
            m.store.set((number, name), NOTHING_YET)
    outer = _activation(m, function)
    for name, value in bound.given.items():
        if outer is not None:
            before = m.store.get((outer.id, name))
            value = widened(before, value) if before is not None else value
        m.store.set((number, name), value)
    for name in bound.defaults:
        m.store.set((number, name), _default(m, function, name, bound.maybe, arguments))
    if parameters.vararg:
        extra = one(Tuple(tuple(bound.extra)))
        if bound.rest is not None:
            rest = containers.new_list(m, parameters.vararg, bound.extra, bound.rest, "builtins.tuple")
            extra = rest
        m.store.set((number, parameters.vararg.arg), extra)
    if parameters.kwarg:
        m.frame, outer = frame, m.frame
        made = m.made(parameters.kwarg, "builtins.dict")
        atom = made.single
        assert isinstance(atom, Instance)
        containers.clear(m, atom)
        for name, value in bound.extra_keywords.items():
            writing.store_item(m, made, const(name), value, node, dictionaries.place_of_keyword(arguments, name, node))
        if bound.open_keywords is not None:
            dictionaries.add_unknown_key(m, atom, unknown(OPAQUE, "keyword", 0, 0, "builtins.str"), bound.open_keywords)
        m.store.set((number, parameters.kwarg.arg), made)
        m.frame = outer
    first = [*parameters.posonlyargs, *parameters.args]
    if frame.owner is not None and first:
        frame.receiver = m.store.get((number, first[0].arg))
    return frame


NOTHING_YET = NOTHING


def _activation(m: Machine, function: Function) -> Frame | None:
    """Return the call of the same function that this one is inside of: what changes from call to call is widened."""
    frame: Frame | None = m.frame
    while frame is not None:
        if frame.function is not None and frame.function.node is function.node:
            return frame
        frame = frame.parent
    return None


def _default(m: Machine, function: Function, name: str, maybe: set[str], arguments: Arguments) -> Value:
    node = default_of(function.node.args, name)
    found = m.store.get((function, id(node))) if node is not None else None
    if found is None and node is None and name not in maybe:
        # Something outside of the project passes it: a decorator that reads the command line, for example.
        from dslint.python.entries import open_value

        found = open_value(m, function, name, annotation_of(function.node.args, name))
    if found is None:
        found = unknown(INPUT, f"parameter `{name}`") if name not in maybe else NOTHING
    if name in maybe:
        for unpacked in (arguments.open_keywords, arguments.rest):
            if unpacked is not None:
                found = join(found, _one_of(m, unpacked) if node is not None else unpacked)
    return found


def _one_of(m: Machine, unpacked: Value) -> Value:
    """Return what a parameter with a default may get of unpacked values: which one it gets, nobody knows.

    All items of a batch are the rank's own, but the number of the rank is in one of several, for another parameter.
    """
    bits = m.varies(unpacked)
    return unpacked.with_(LOST) if bits & RANKED and not bits & OWN else unpacked


def run_frame(m: Machine, frame: Frame, node: ast.AST) -> Value:
    """Run the body of a function and return its result; the caller's frame is back afterwards."""
    from dslint.python.expressions import evaluate
    from dslint.python.statements import execute

    assert frame.function is not None
    function = frame.function
    m.reached.add(id(function.node))
    outer_events, outer_control, entry_lanes = m.events, m.control, m.lanes
    body: list[Node] = []
    m.frame, m.events, m.control = frame, body, 0
    tries = len(m.tries)
    if isinstance(function.node, ast.Lambda):
        value = evaluate(m, function.node.body)
        frame.returns.append(Outcome({}, m.lanes, m.control, value))
        is_plain = True
    else:
        try:
            execute(m, function.node.body)
        except OutOfBudgetError:
            m.partial = [Call(node, module_of(frame), function, Seq([*body, *m.partial]))]
            raise
        if m.alive:
            configdicts.leaving(m)
            frame.returns.append(
                Outcome(m.store.changes(frame.mark) if frame.returns else {}, m.lanes, m.control, NONE_)
            )
            is_plain = len(frame.returns) == 1
        else:
            is_plain = len(frame.returns) == 1 and frame.returns[0].node is function.node.body[-1]
    del m.tries[tries:]
    m.frame = frame.parent  # type: ignore[assignment]
    m.events = outer_events
    if body:
        m.events.append(Call(node, m.frame.module, function, Seq(body)))
    result = _returned(m, frame, is_plain)
    if len(frame.returns) == 2 and m.alive:
        _note_choice(m, frame, body, result)
    if m.alive:
        ended = 0
        for outcome in frame.returns:
            ended |= outcome.lanes
        m.lanes = ended or entry_lanes
    else:
        m.lanes = entry_lanes
    m.control = outer_control
    return result


def _note_choice(m: Machine, frame: Frame, body: list[Node], result: Value) -> None:
    """Remember which test has chosen what a function with two ways out returns, as that of `a if test else b`."""
    first, second = frame.returns
    if result.number is None or result.number in m.chosen:
        return
    if result.number in (number for way in frame.returns if way.value for number in (way.value.number,)):
        return
    for node in body:
        if not isinstance(node, Alt) or node.test is None:
            continue
        sides = [_leaves_by(side, first.node) for side in (node.then, node.orelse)]
        if sides in ([True, False], [False, True]):
            values = (first.value or NONE_, second.value or NONE_)
            holds, otherwise = values if sides[0] else values[::-1]
            m.chosen[result.number] = Choice(node.node, node.test, frame.module, holds, otherwise)
            return


def _leaves_by(block: Seq, statement: ast.AST | None) -> bool:
    """Return whether a block ends with this `return`, whatever comes before."""
    return bool(block.items) and isinstance(last := block.items[-1], Exit) and last.node is statement


def module_of(frame: Frame) -> Module:
    """Return the module that calls a function."""
    return frame.parent.module if frame.parent is not None else frame.module


NONE_ = const(None)


@lru_cache(maxsize=20_000)
def has_inner_functions(node: ast.AST) -> bool:
    """Return whether something inside a function may keep its variables alive."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
    return any(isinstance(inner, kinds) for inner in ast.walk(node) if inner is not node)


def _returned(m: Machine, frame: Frame, is_plain: bool) -> Value:
    """Join the ways out of a function; its result differs between ranks where they may leave it differently."""
    outcomes = frame.returns
    is_over = frame.function is not None and frame.on_yield is None and not has_inner_functions(frame.function.node)
    if len(outcomes) > 1 and is_over:
        for outcome in outcomes:
            outcome.changes = {key: value for key, value in outcome.changes.items() if key[0] != frame.id}
    if is_plain:
        m.alive = True
        if is_over:
            m.store.forget(frame.id, frame.mark)
        return outcomes[0].value or NONE_
    m.store.undo(frame.mark)
    if not outcomes:
        m.alive = False
        return NOTHING
    varies = 0
    for outcome in outcomes:
        varies |= outcome.control
    m.asked = (frame.function.node, None) if frame.function is not None else None
    m.meet(outcomes, varies)
    found, lanes = outcomes[0].value or NONE_, outcomes[0].lanes
    for outcome in outcomes[1:]:
        found = m.selected(found, lanes, outcome.value or NONE_, outcome.lanes, varies)
        lanes |= outcome.lanes
    m.asked = None
    return found
