"""Loops: bodies run until nothing changes any more; what changes from turn to turn differs where the count does."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from dslint.python import bindings, containers, turns, writing
from dslint.python.events import Alt, Exit, Loop, Node, Seq, walk
from dslint.python.generators import run_generator, turns_of, yielded
from dslint.python.heap import ITEMS, LENGTH, REST, LoopState, Outcome, OutOfBudgetError
from dslint.python.iterators import own_items
from dslint.python.joins import is_same, join, widened
from dslint.python.machine import Machine
from dslint.python.onceloops import ran_each, ran_in_turns, ran_once, ran_over_keys, ran_to_break
from dslint.python.several import note_none
from dslint.python.store import Key
from dslint.python.values import NOTHING, ClassAtom, Const, Instance, Tuple, Value, one
from dslint.python.varies import DIVERGENT, LOST, RANKED

_TURNS = 4


def items_of(m: Machine, value: Value, node: ast.AST, picked: int = 0) -> Value:
    """Return what an iteration over a value gives, `__iter__` of the project's classes included.

    `picked` is how the positions differ between ranks, where a sampler picks them.
    """
    found = NOTHING
    for atom in value.atoms:
        part: Value | None = None
        if isinstance(atom, Instance) and atom.cls == "builtins.generator":
            part = yielded(m, atom, node)
        elif isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
            part = own_items(m, atom, node, picked)
        found = join(found, part if part is not None else containers.element(m, one(atom), node))
    return found.with_(value.varies | picked, 0, value.made_by)


def run_loop(
    m: Machine, loop: Loop, turn: Callable[[], None], orelse: list[ast.stmt], number: int, *, endless: bool = False
) -> None:
    """Run a loop: `turn` does what comes at the head and the body, once.

    The state at the head is joined with what each turn leaves until it stays the same.
    """
    outer, control, lanes = m.events, m.control, m.lanes
    start = m.store.mark()
    before: dict[Key, Value | None] = {}
    state = LoopState(start, number)
    for attempt in range(_TURNS):
        m.turn += 1
        mark = m.store.mark()
        state = LoopState(mark, number, loop)
        m.frame.loops.append(state)
        body: list[Node] = []
        m.events = body
        try:
            turn()
        except OutOfBudgetError:
            # A whole turn says more than the part of a later one.
            loop.body = loop.body if loop.body.items else Seq(body)
            m.partial = m.partial if loop.body.items is body else []
            m.give_up(loop, loop.body.items)
            raise
        m.frame.loops.pop()
        if not (m.frame.goes_on and loop.body.items):  # on the rest of the way its calls got little
            loop.body = Seq(body)
        back = list(state.continues)
        if m.alive:
            back.append(Outcome(m.store.changes(mark), m.lanes, m.control))
        m.store.undo(mark)
        m.alive, m.control, m.lanes = True, control, lanes
        if not _at_head(m, back, before, attempt == _TURNS - 1):
            break
    m.events = outer
    _after(m, loop, state, before, orelse, endless)


def _at_head(m: Machine, back: list[Outcome], before: dict[Key, Value | None], is_last: bool) -> bool:
    """Join what the turns leave into the state at the head; return whether anything changed."""
    changed = False
    varies = 0
    for outcome in back:
        varies |= outcome.control
    for key in dict.fromkeys(key for outcome in back for key in outcome.changes):
        old = m.store.get(key)
        # A list that had some unknown number of items has another one after a turn, and a number may be another one.
        is_first_turn = key not in before
        before.setdefault(key, old)
        new = old if old is not None else NOTHING
        for outcome in back:
            value = outcome.changes.get(key, old)
            if old is None:
                new = join(m.absent_value(key) or NOTHING, new)
            if value is None:
                continue
            if old is None or not old.atoms:
                m.note_absence(key, back, varies)
            elif not value.atoms and not m.lacks(key):
                m.note_absence(key, back, varies)  # a turn takes it away
                changed = True
            # A cell that is read for the first time is the same on all ways.
            is_first = old is None and all(o.changes.get(key) == value for o in back)
            bits = varies if len(back) > 1 and value != old and not is_first else 0
            if key[1] == LENGTH and outcome.changes.get(key) is not None:
                value = value.with_(m.length_bits(key, back, varies))
            new = _widened(
                m,
                key,
                new,
                value.with_(bits, bits)
                if bits & (DIVERGENT | LOST) and outcome.changes.get(key) != old and len(back) > 1
                else value,
            )
        if old is None or new != old:
            m.store.set(key, bindings.marked(m, key, new, back, old))
            changed = True
        elif is_first_turn and (key[1] == LENGTH or not all(is_same(old, o.changes.get(key, old)) for o in back)):
            m.store.set(key, replace(new, number=None))
    return changed


def _widened(m: Machine, key: Key, old: Value, new: Value) -> Value:
    if key[1] == ITEMS and old != new and old.atoms:
        # A list that grows keeps no order: its items are joined.
        rest = m.store.get((key[0], REST)) or NOTHING
        joined = join(rest, join(writing.loosened(old), writing.loosened(new)))
        if rest != joined:
            m.store.set((key[0], REST), joined)
        return NOTHING if not _same_length(old, new) else _by_position(old, new)
    return widened(old, new)


def _same_length(old: Value, new: Value) -> bool:
    first, second = old.single, new.single
    return isinstance(first, Tuple) and isinstance(second, Tuple) and len(first.items) == len(second.items)


def _by_position(old: Value, new: Value) -> Value:
    first, second = old.single, new.single
    assert isinstance(first, Tuple)
    assert isinstance(second, Tuple)
    return one(Tuple(tuple(widened(a, b) for a, b in zip(first.items, second.items, strict=True))))


def _after(
    m: Machine, loop: Loop, state: LoopState, before: dict[Key, Value | None], orelse: list[ast.stmt], endless: bool
) -> None:
    """Leave the loop: by its end (then `else` runs) or by a `break`; the number of turns may differ between ranks."""
    from dslint.python.statements import execute

    varies = loop.varies & ~LOST if loop.varies & DIVERGENT else loop.varies
    for outcome in state.breaks:
        varies |= outcome.control
    if varies & (DIVERGENT | LOST):
        for key, old in before.items():
            now = m.store.get(key)
            is_other = old is not None and old.atoms and now is not None and not is_same(now, old)
            if now is not None and (is_other or (key[1] == LENGTH and old is not None)):
                m.store.set(key, now.with_(varies, varies))
            if isinstance(key[1], tuple) and key[1][0] == "key" and m.lacks(key):
                number = m.store.get((key[0], LENGTH))  # a turn adds or takes it
                m.store.set((key[0], LENGTH), (number or NOTHING).with_(varies))
    mark, control, lanes = m.store.mark(), m.control, m.lanes
    outcomes: list[Outcome] = []
    if not endless:
        if orelse:
            outer, m.events = m.events, loop.orelse.items
            execute(m, orelse)
            m.events = outer
        if m.alive:
            outcomes.append(Outcome(m.store.changes(mark), m.lanes, m.control))
        m.store.undo(mark)
    m.alive, m.control, m.lanes = True, control, lanes
    bits = 0
    for outcome in state.breaks:
        bits |= outcome.control
    outcomes += state.breaks
    m.meet(outcomes, bits)
    if outcomes:
        ended = 0
        for outcome in outcomes:
            ended |= outcome.lanes
        m.lanes = ended
    if not endless and loop.varies & DIVERGENT:
        m.control = control


def for_loop(m: Machine, node: ast.For | ast.AsyncFor) -> None:
    """Run a `for` statement."""
    from dslint.python.expressions import evaluate
    from dslint.python.statements import assign, execute
    from dslint.python.wrappers import is_endless

    subject = evaluate(m, node.iter)
    if not m.alive:
        return
    note_none(m, subject, "__iter__", node.iter)
    number = m.new_loop(node)
    counted = containers.counted(m, subject) | _own_turns(m, subject, node)
    known = containers.exact_items(m, subject)
    loop = Loop(
        node, m.frame.module, m.with_origin(subject), counted, Seq(), Seq(), bool(known), number=number, since=m.turn
    )
    generator = _generator_of(m, subject, node)
    if generator is not None:
        _over_generator(m, node, loop, generator, number)
        return
    if known is not None and not known:
        if node.orelse:
            execute(m, node.orelse)
        return
    if ran_once(m, node, known) or ran_in_turns(m, node, known) or ran_each(m, node, known):
        return
    if ran_over_keys(m, node):
        return

    def turn() -> None:
        item = turns.of_range(m, subject, turns.of_turn(m, items_of(m, subject, node), number), number)
        loop.items |= makers(item)
        loop.counts = len(known or (1, 2)) > 1 and _is_number(item) and not _is_once(m, subject)
        assign(m, node.target, item)
        if m.alive:
            execute(m, node.body)

    run_loop(m, loop, turn, node.orelse, number, endless=is_endless(m, subject))
    if loop.body.items or loop.orelse.items:
        m.events.append(loop)


def _generator_of(m: Machine, subject: Value, node: ast.AST) -> Instance | None:
    """Return the generator that a loop runs: the value itself, or what `__iter__` of the project's class gives."""
    from dslint.python.invoke import call_method

    atom = subject.single
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        made = call_method(m, subject, "__iter__", [], node)
        atom = made.single if made is not None else None
    is_generator = isinstance(atom, Instance) and atom.cls == "builtins.generator" and atom in m.generators
    return atom if is_generator and isinstance(atom, Instance) else None


def _own_turns(m: Machine, subject: Value, node: ast.AST) -> int:
    """Return the numbers of ranks by which the `__iter__` of an object of the project gives each rank its share."""
    atom = subject.single
    is_own = isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom)
    return turns_of(m, atom, node) & RANKED if is_own and isinstance(atom, Instance) else 0


def _is_once(m: Machine, subject: Value) -> bool:
    """Return whether a range ends at 1, or at a parameter that is 1 where nobody gives another."""
    atom = subject.single
    turns = m.store.get((atom, "#turns")) if isinstance(atom, Instance) else None
    return turns is not None and turns.constants in ((0,), (1,))


def _is_number(item: Value) -> bool:
    kinds = {a.kind if isinstance(a, Const) else getattr(a, "type", "") for a in item.atoms}
    return bool(kinds) and kinds <= {int, "builtins.int"}


def makers(item: Value, depth: int = 0) -> frozenset[ast.AST]:
    """Return the places that made what a loop hands out, also as a part of a tuple (`enumerate`, `zip`)."""
    found = frozenset(atom.node for atom in item.atoms if isinstance(atom, Instance))
    for atom in item.atoms:
        if isinstance(atom, Tuple) and depth < 3:
            found = found.union(*(makers(part, depth + 1) for part in atom.items))
    return found


def _over_generator(m: Machine, node: ast.For | ast.AsyncFor, loop: Loop, generator: Instance, number: int) -> None:
    from dslint.python.statements import assign, execute

    returns: list[Outcome] = []
    loop.is_frame = True

    def turn() -> None:
        def body(value: Value) -> None:
            mark = m.store.mark()
            inner = LoopState(mark, number)
            m.frame.loops.append(inner)
            lanes, control = m.lanes, m.control
            returned = len(m.frame.returns)
            outer, m.events = m.events, []
            assign(m, node.target, value)
            if m.alive:
                execute(m, node.body)
            m.frame.loops.pop()
            part, m.events = m.events, outer
            returns.extend(m.frame.returns[returned:])
            m.events += _inside_generator(m, node, part, inner)
            outer_state = m.frame.loops[-1] if m.frame.loops else None
            ways = list(inner.continues)
            if m.alive:
                ways.append(Outcome(m.store.changes(mark), m.lanes, m.control))
            m.store.undo(mark)
            if outer_state is not None and inner.breaks:
                base = m.store.changes(outer_state.mark)
                for way in inner.breaks:
                    outer_state.breaks.append(Outcome({**base, **way.changes}, way.lanes, way.control, None, way.node))
            m.meet(ways, 0)
            if ways:
                m.lanes, m.control = lanes, control

        run_generator(m, generator, node, body)
        loop.varies |= containers.counted(m, one(generator))

    run_loop(m, loop, turn, node.orelse, number)
    if loop.body.items or loop.orelse.items:
        m.events.append(loop)
    for way in returns[-1:]:
        leaving = Seq([Exit("return", way.node or node)])
        m.events.append(
            Alt(node, m.frame.module, None, m.worlds.full, m.worlds.full if m.alive else 0, way.control, leaving, Seq())
        )


def _inside_generator(m: Machine, node: ast.AST, part: list[Node], state: LoopState) -> list[Node]:
    """Return the events of a loop's body as they stand inside of the generator: `break` ends the generator there."""
    if not part:
        return part
    ends = {id(way.node) for way in state.breaks}
    for found in walk(Seq(part)):
        if isinstance(found, Exit) and found.kind == "break" and id(found.node) in ends:
            found.kind = "return"
    if state.continues:
        return [Loop(node, m.frame.module, None, 0, Seq(part), Seq(), True)]
    return part


def while_loop(m: Machine, node: ast.While) -> None:
    """Run a `while` statement."""
    from dslint.python.expressions import evaluate
    from dslint.python.narrowing import narrow
    from dslint.python.statements import execute

    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
    if endless and ran_to_break(m, node):
        return
    number = m.new_loop(node)
    loop = Loop(node, m.frame.module, None, 0, Seq(), Seq(), number=number, since=m.turn)
    loop.at_least_once = endless

    def turn() -> None:
        test = evaluate(m, node.test)
        true, false, varies = m.truth(test)
        loop.subject = test
        if not endless:
            loop.varies |= varies
        if not true:
            m.alive = False
            return
        if not endless and true != m.lanes and true & false != m.lanes:
            m.lanes = true
        narrow(m, node.test, True)
        execute(m, node.body)

    run_loop(m, loop, turn, node.orelse, number, endless=endless)
    if not endless:
        narrow(m, node.test, False)
    if loop.body.items or loop.orelse.items:
        m.events.append(loop)


def repeat(m: Machine, node: ast.AST, run: Callable[[], object], varies: int = 0) -> None:
    """Run something that a library may run any number of times."""
    loop = Loop(node, m.frame.module, None, varies, Seq(), Seq())

    def turn() -> None:
        run()

    run_loop(m, loop, turn, [], m.new_loop(node))
    if loop.body.items:
        m.events.append(loop)
