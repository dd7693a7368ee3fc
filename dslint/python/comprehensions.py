"""Comprehensions and generator expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from dslint.python import containers, loops, onceloops, setorders, writing
from dslint.python.events import Alt, Loop, Seq
from dslint.python.heap import COUNT, LENGTH, REST, Frame
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.several import note_none
from dslint.python.values import NOTHING, Instance, Value, Written, const, one

Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def comprehension(m: Machine, node: Comprehension) -> Value:
    """Return the value of a comprehension: its loops run, and what they give is joined."""
    from dslint.python.expressions import evaluate
    from dslint.python.scopes import Scope

    frame = m.frame
    number = m.context((frame.id, id(node), "comprehension"))
    enclosing = (frame.id, *frame.enclosing) if frame.scope is not None else frame.enclosing
    scope = Scope({n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)})
    inner = Frame(number, frame.module, frame.module_frame, frame, frame.function, scope, enclosing)
    inner.owner, inner.receiver, inner.loops = frame.owner, frame.receiver, []
    inner.mark, inner.class_body = m.store.mark(), None
    inner.is_comprehension = True
    if frame.class_body is not None:
        inner.enclosing = (frame.id, *frame.enclosing)
    results: list[tuple[Value, Value | None]] = []
    counted = [0]
    exact: list[Value] = []

    def produce() -> None:
        if isinstance(node, ast.DictComp):
            key = evaluate(m, node.key)
            results.append((evaluate(m, node.value), key))
        else:
            results.append((evaluate(m, node.elt), None))

    first = evaluate(m, node.generators[0].iter)
    note_none(m, first, "__iter__", node.generators[0].iter)
    m.frame = inner
    known = containers.exact_items(m, first) if len(node.generators) == 1 and not node.generators[0].ifs else None
    try:
        if known is not None and len(known) <= 8:
            from dslint.python.statements import assign

            for at, item in enumerate(known):
                onceloops.in_turn(m, inner, node, at)
                assign(m, node.generators[0].target, item)
                produce()
            exact = [value for value, _ in results]
        else:
            _generate(m, node, 0, first, produce, counted)
            known = None
    finally:
        m.frame = frame
    if isinstance(node, ast.GeneratorExp):
        _may_stop(m, inner, results)
    made = _collected(m, node, results, counted[0], exact if known is not None else None)
    if isinstance(node, ast.ListComp) and known is None:
        _counted_out(m, node, first, made)
    if isinstance(node, ast.ListComp | ast.DictComp):
        _follow(m, node, first, made)
    return made


def _counted_out(m: Machine, node: ast.ListComp, subject: Value, made: Value) -> None:
    """Note the length of a list that is made of all numbers of a range; whatever changes the list forgets it."""
    ranged, atom = subject.single, made.single
    count = m.store.get((ranged, COUNT)) if isinstance(ranged, Instance) else None
    is_whole = len(node.generators) == 1 and not node.generators[0].ifs
    if is_whole and count is not None and count.atoms and isinstance(atom, Instance):
        length = containers.length_of(m, node, 0)
        m.store.set((atom, LENGTH), replace(length, number=(containers.ENTRIES, count.single)))


def _follow(m: Machine, node: ast.ListComp | ast.DictComp, subject: Value, made: Value) -> None:
    """Note where a set gives the order of a list, or the numbers in a dictionary: `{x: n for n, x in enumerate(s)}`."""
    atom = subject.single
    source: Value | None = subject
    if isinstance(node, ast.DictComp):
        source = m.store.get((atom, setorders.NUMBERED)) if isinstance(atom, Instance) else None
    if source is not None:
        setorders.followed(m, source, made, node)


def _may_stop(m: Machine, frame: Frame, results: list[tuple[Value, Value | None]]) -> None:
    """Whoever takes the items may stop after any of them: what they changed has any value that it had on the way."""
    bits = 0
    for value, _ in results:
        bits |= m.varies(value)
    for key, values in m.store.history(frame.mark).items():
        if key[0] != frame.id and len(values) > 1:
            m.store.set(key, join_all(values).with_(bits))


def _generate(
    m: Machine, node: Comprehension, at: int, subject: Value, produce: Callable[[], None], counted: list[int]
) -> None:
    from dslint.python.statements import assign

    part = node.generators[at]
    bits = containers.taken(m, subject, part.iter)
    counted[0] |= bits
    loop = Loop(part.iter, m.frame.module, subject, bits, Seq(), Seq())

    def turn() -> None:
        assign(m, part.target, loops.items_of(m, subject, part.iter))
        _filtered(m, node, at, 0, produce, counted)

    loops.run_loop(m, loop, turn, [], m.new_loop(part.iter))
    if loop.body.items:
        m.events.append(loop)


def _filtered(
    m: Machine, node: Comprehension, at: int, nth: int, produce: Callable[[], None], counted: list[int]
) -> None:
    """Run what comes after the tests of a generator from the `nth` on."""
    from dslint.python.expressions import evaluate
    from dslint.python.narrowing import narrow

    part = node.generators[at]
    if not m.alive:
        return
    if nth == len(part.ifs):
        if at + 1 < len(node.generators):
            _generate(m, node, at + 1, evaluate(m, node.generators[at + 1].iter), produce, counted)
        else:
            produce()
        return
    test = part.ifs[nth]
    value = evaluate(m, test)
    if not m.alive:
        return
    true, false, varies = m.truth(value)
    counted[0] |= (varies if true & false else m.split_varies(true)) if false else 0

    def holds() -> None:
        narrow(m, test, True)
        _filtered(m, node, at, nth + 1, produce, counted)

    alt = Alt(test, m.frame.module, value, true, false, varies, Seq(), Seq())
    outer = m.events
    m.branch(alt, holds, lambda: None, value.number)
    if alt.then.items:
        outer.append(alt)


def _collected(
    m: Machine, node: Comprehension, results: list[tuple[Value, Value | None]], counted: int, exact: list[Value] | None
) -> Value:
    element = NOTHING
    for value, _ in results:
        element = join(element, value)
    element = element.with_(counted)  # where ranks skip different ones, those at one place differ
    if isinstance(node, ast.DictComp):
        made = m.made(node, "builtins.dict")
        atom = made.single
        assert isinstance(atom, Instance)
        containers.clear(m, atom)
        for value, key in results:
            key = (key or const(None)).with_(counted)
            writing.store_item(m, made, key, value, node, one(Written(node.key, node.value)))
            counted |= m.varies(key) if exact is None else 0  # equal keys are one
        if exact is None and element.atoms:
            m.store.set((atom, REST), element)
            is_filtered = any(part.ifs for part in node.generators)
            m.store.set((atom, "#length"), containers.length_of(m, node, counted, is_filtered=is_filtered))
        return made
    if isinstance(node, ast.GeneratorExp):
        return (
            containers.open_iterator(m, node, element, counted)
            if exact is None
            else containers.new_iterator(m, node, exact)
        )
    if isinstance(node, ast.SetComp):
        return containers.new_set(m, node, [element], counted)
    if exact is not None:
        return containers.new_list(m, node, exact)
    made = containers.new_list(m, node, [], element)
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, "#length"), containers.length_of(m, node, counted))
    return made
