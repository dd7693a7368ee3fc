"""Generators: their body runs where somebody iterates over them, and every `yield` runs the body of that loop."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from dslint.python.binding import Arguments
from dslint.python.events import Call, Node, Seq
from dslint.python.heap import LENGTH
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, OPAQUE, ClassAtom, Function, Instance, Unknown, Value, one


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


def note_restarts(m: Machine) -> None:
    """Note which loaders the loops around a `yield` begin anew."""
    for at, state in enumerate(m.frame.loops):
        note_restart(m, state.tree.items if state.tree is not None else frozenset(), at)


def note_restart(m: Machine, made: frozenset[ast.AST], at: int) -> None:
    """Note that a generator begins anew, in a loop around, what `made` these items: `while True: yield from loader`."""
    around = (state.tree for state in m.frame.loops[:at] if state.tree is not None)
    if any(isinstance(loop.node, ast.While) or loop.counts for loop in around):
        m.restarts |= made


def yielded(m: Machine, atom: Instance, node: ast.AST) -> Value:
    """Return what a generator may yield; its events go into the tree here."""
    found = [NOTHING]

    def body(value: Value) -> None:
        # What it holds in the body of the generator is forgotten outside of it.
        kept = value.with_(m.varies(value), m.shape(value), m.made_by(value), m.origin(value))
        found[0] = join(found[0], kept, m.control)

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


def turns_of(m: Machine, atom: Instance, node: ast.AST) -> int:
    """Return the causes for which ranks may get a different number of items from an object of the project.

    Its `__iter__` is run on the side: what it does happens where somebody iterates.
    """
    from dslint.python.containers import counted
    from dslint.python.invoke import call_method

    outer, mark = m.events, m.store.mark()
    m.events = []
    made = call_method(m, one(atom), "__iter__", [], node)
    found = 0
    for inner in made.atoms if made is not None else ():
        if isinstance(inner, Instance) and inner in m.generators:
            yielded(m, inner, node)
            length = m.store.get((inner, LENGTH))
            found |= length.varies if length is not None else 0
    if made is not None and not found:
        found = counted(m, made)
    m.events, m.alive = outer, True
    m.store.undo(mark)
    return found
