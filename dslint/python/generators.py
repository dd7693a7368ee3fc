"""Generators: their body runs where somebody iterates over them, and every `yield` runs the body of that loop."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from dslint.python.binding import Arguments
from dslint.python.events import Call, Node, Seq
from dslint.python.heap import LENGTH
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, OPAQUE, ClassAtom, Function, Instance, Unknown, Value, join


@dataclass(slots=True)
class Waiting:
    """A generator that nobody has run yet."""

    function: Function
    arguments: Arguments
    owner: ClassAtom | None


def new_generator(
    m: Machine, function: Function, arguments: Arguments, node: ast.AST, owner: ClassAtom | None
) -> Value:
    """Return the generator that a call of a generator function gives: its body has not begun."""
    made = m.made(node, "builtins.generator")
    atom = made.single
    assert isinstance(atom, Instance)
    m.generators[atom] = Waiting(function, arguments, owner)
    return made


def run_generator(m: Machine, atom: Instance, node: ast.AST, body: Callable[[Value], None]) -> None:
    """Run the body of a generator; `body` runs at every `yield`, in the frame of the one who iterates."""
    from dslint.python.frames import call_function

    waiting = m.generators.get(atom)
    if waiting is None:
        return
    consumer = m.frame

    def on_yield(value: Value) -> None:
        generator, m.frame = m.frame, consumer
        control = m.control
        try:
            body(value)
        finally:
            m.frame, m.control = generator, control

    m.yielded_by = 0
    call_function(m, waiting.function, waiting.arguments, node, waiting.owner, on_yield)
    if m.yielded_by and m.alive:
        number = Unknown(OPAQUE, "number of items", "builtins.int")
        m.store.set((atom, LENGTH), Value(frozenset((number,)), m.yielded_by))


def yielded(m: Machine, atom: Instance, node: ast.AST) -> Value:
    """Return what a generator may yield; its events go into the tree here."""
    found = [NOTHING]

    def body(value: Value) -> None:
        found[0] = join(found[0], value, m.control)

    outer: list[Node] = m.events
    inner: list[Node] = []
    m.events = inner
    run_generator(m, atom, node, body)
    m.events = outer
    m.alive = True
    if inner:
        waiting = m.generators.get(atom)
        m.events.append(Call(node, m.frame.module, waiting.function if waiting else None, Seq(inner)))
    return found[0]
