"""`try` statements: handlers, and what `finally` does on every way out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from dslint.python import statements
from dslint.python.events import Alt, Seq, Try
from dslint.python.events import events as all_events
from dslint.python.exceptions import caught
from dslint.python.expressions import evaluate
from dslint.python.heap import Outcome, OutOfBudgetError
from dslint.python.iterators import ends_differ
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.values import OPAQUE, TRUE, Instance, Value, Written, unknown
from dslint.python.varies import HOST

# A batch of one rank takes more memory than the batches of the others.
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|(?i:out of memory)")
_SOMETHING = unknown(OPAQUE, "an exception")


def _try(m: Machine, node: ast.Try) -> None:
    if node.finalbody:
        _with_final(m, node)
    else:
        tree = Try(node, m.frame.module, Seq(), [], Seq(), Seq())
        _guarded(m, node, tree)
        m.events.append(tree)


def _with_final(m: Machine, node: ast.Try) -> None:
    """Run a `try` whose `finally` also runs on every way that leaves the block early."""
    tree = Try(node, m.frame.module, Seq(), [], Seq(), Seq())

    def final(raised: Value | None) -> bool:
        statements.execute(m, node.finalbody)
        return False

    around(m, tree, lambda: _guarded(m, node, tree), final)
    m.events.append(tree)


def around(m: Machine, tree: Try, guarded: Callable[[], None], final: Callable[[Value | None], bool]) -> bool:
    """Run a block, and `final` on every way out of it: its end, early exits, exceptions (with what may be raised).

    `final` says whether it may end the exception; return whether it did. The events of `final` go into `tree.final`.
    """
    frame = m.frame
    returns, frame.returns = frame.returns, []
    loop = frame.loops[-1] if frame.loops else None
    kept = (loop.breaks, loop.continues) if loop is not None else ([], [])
    if loop is not None:
        loop.breaks, loop.continues = [], []
    mark, lanes, control = m.store.mark(), m.lanes, m.control
    raised: list[Outcome] = []
    m.tries.append((mark, raised))
    guarded()
    m.tries.pop()
    pending = [(frame.returns, returns, frame.mark)]
    if loop is not None:
        pending += [(loop.breaks, kept[0], loop.mark), (loop.continues, kept[1], loop.mark)]
        loop.breaks, loop.continues = kept
    frame.returns = returns
    events: list[list[Any]] = []
    m.raised_by = _raised_by(m, raised, lanes)
    for early, target, since in pending:
        for outcome in early:
            target += _finally(m, final, outcome, mark, since, events)
    here = [Outcome(m.store.changes(mark), m.lanes, m.control)] if m.alive else []
    on_the_way = way_states(m, mark, raised)
    m.store.undo(mark)
    m.raised_by = _raised_by(m, raised, lanes)
    value = join_all(o.value if o.value is not None else _SOMETHING for o in raised)
    thrown_way = Outcome(on_the_way, lanes, control, value if raised else _SOMETHING)
    swallowed = _on_exception(m, final, thrown_way, mark, bool(raised), events)
    outcomes = [*_after_final(m, final, here, mark, events), *swallowed]
    m.meet(outcomes, _raised_by(m, raised, lanes))
    tree.final = _joined_events(m, tree, events)
    return bool(swallowed)


def _raised_by(m: Machine, raised: list[Outcome], lanes: int) -> int:
    """Return the causes for which some ranks leave a block by an exception and others do not."""
    found = 0
    for outcome in raised:
        found |= outcome.control | (m.split_varies(outcome.lanes) if outcome.lanes != lanes else 0)
    return found


def _after_final(
    m: Machine, final: Callable[[Value | None], bool], here: list[Outcome], mark: int, events: list[list[Any]]
) -> list[Outcome]:
    """Run `final` at the end of the block."""
    found = []
    for outcome in here:
        found += _finally(m, final, outcome, mark, mark, events)
    return found


def _on_exception(
    m: Machine, final: Callable[[Value | None], bool], way: Outcome, mark: int, is_sure: bool, events: list[list[Any]]
) -> list[Outcome]:
    """Run `final` where an exception leaves the block; return the ways on which the exception ends there."""
    inner, by = m.store.mark(), m.raised_by
    m.store.apply(way.changes)
    m.alive, m.lanes, m.control = True, way.lanes, way.control
    outer, m.events = m.events, []
    ends = final(way.value)
    events.append(m.events)
    m.events = outer
    found: list[Outcome] = []
    if m.alive:
        if is_sure and m.tries:
            outer_mark, target = m.tries[-1]
            target.append(Outcome(m.store.changes(outer_mark), m.lanes, m.control | by, way.value, way.node))
        if ends:
            found.append(Outcome(m.store.changes(mark), m.lanes, m.control))
    m.store.undo(inner)
    m.alive, m.lanes, m.control = False, way.lanes, way.control
    return found


def _joined_events(m: Machine, tree: Try, events: list[list[Any]]) -> Seq:
    """Return the events of `final`: those of one run, or a choice where the runs differ."""
    # An exception may leave from every lane that came in: its run shows the events of all.
    shown = sorted((found for found in events if found), key=lambda found: -_lanes(found))
    if not shown:
        return Seq()
    if len({tuple(getattr(e, "node", None) for e in found) for found in events}) == 1:
        return Seq(shown[0])
    choice = Seq(shown[0])
    for found in [*shown[1:], *([[]] if len(shown) < len(events) else [])]:
        full = m.worlds.full
        choice = Seq([Alt(tree.node, tree.module, None, full, full, 0, choice, Seq(found))])
    return choice


def _lanes(found: list[Any]) -> int:
    return max((bin(event.lanes).count("1") for node in found for event in all_events(node)), default=0)


def way_states(m: Machine, mark: int, raised: list[Outcome]) -> dict[Any, Value]:
    """Return what cells may hold where an exception leaves a block: every value that they had on the way."""
    found = {key: join_all(values) for key, values in m.store.history(mark).items()}
    for outcome in raised:
        for key, value in outcome.changes.items():
            found[key] = join_all(v for v in (found.get(key), value) if v is not None)
    if m.keeps_configs:
        _note_missing(m, mark, raised, found)
    for key in m.store.absent(found, mark):
        before = m.absent_value(key)
        if before is not None:
            found[key] = join(before, found[key])
    return found


def _note_missing(m: Machine, mark: int, raised: list[Outcome], found: dict[Any, Value]) -> None:
    """Note which items of dictionaries were not there at some point on the way."""
    history = m.store.history(mark)
    for outcome in raised:
        for key, value in outcome.changes.items():
            history.setdefault(key, []).append(value)
    absent = set(m.store.absent(found, mark))
    for key, values in history.items():
        owner, name = key
        if not isinstance(owner, Instance) or not isinstance(name, tuple) or name[0] != "key":
            continue
        places = found.get((owner, ("at", name[1])))
        is_display = places is not None and all(isinstance(a, Written) and a.in_display for a in places.atoms)
        is_new = (owner, "#keys") in absent and is_display  # a display is there with all its items
        if not is_new and (key in absent or any(not value.atoms for value in values)):
            found[owner, ("maybe", name[1])] = TRUE


def _finally(
    m: Machine, final: Callable[[Value | None], bool], outcome: Outcome, mark: int, since: int, events: list[list[Any]]
) -> list[Outcome]:
    """Run `final` on one way out, and return that way as it is afterwards."""
    now, alive, lanes, control = m.store.changes(mark), m.alive, m.lanes, m.control
    m.store.undo(mark)
    inner = m.store.mark()
    m.store.apply(outcome.changes)
    m.alive, m.lanes, m.control = True, outcome.lanes, outcome.control
    outer, m.events = m.events, []
    final(None)
    events.append(m.events)
    m.events = outer
    found = []
    if m.alive:
        found = [Outcome(m.store.changes(since), m.lanes, m.control, outcome.value, outcome.node)]
    m.store.undo(inner)
    m.store.apply(now)
    m.alive, m.lanes, m.control = alive, lanes, control
    return found


def _guarded(m: Machine, node: ast.Try, tree: Try) -> None:
    """Run the body of a `try`, its handlers from every state on the way, and its `else`."""
    mark, lanes, control, outer = m.store.mark(), m.lanes, m.control, m.events
    raised: list[Outcome] = []
    if node.handlers:
        m.tries.append((mark, raised))
    m.events = tree.body.items
    ended, m.ended_by = m.ended_by, 0
    try:
        statements.execute(m, node.body)
    except OutOfBudgetError:
        m.give_up(tree, tree.body.items)
        raise
    own = ends_differ(raised)
    if own:
        m.ended_by, m.ended_in = m.ended_by | own, node.body[0]
    _end_of_items(m, node)
    m.ended_by = ended
    if node.handlers:
        m.tries.pop()
    if m.alive and node.orelse:
        m.events = tree.orelse.items
        statements.execute(m, node.orelse)
    outcomes = [Outcome(m.store.changes(mark), m.lanes, m.control)] if m.alive else []
    on_the_way = way_states(m, mark, raised)
    m.store.undo(mark)
    by = _raised_by(m, raised, lanes)
    for handler in node.handlers:
        seq = Seq()
        tree.handlers.append(seq)
        m.events, m.alive, m.lanes, m.control = seq.items, True, lanes, control | by
        m.store.apply(on_the_way)
        wanted = evaluate(m, handler.type) if handler.type is not None else None
        if handler.name:
            statements.store_name(m, handler.name, caught(m, handler, wanted, raised))
        statements.execute(m, handler.body)
        if m.alive:
            outcomes.append(Outcome(m.store.changes(mark), m.lanes, m.control))
        m.store.undo(mark)
    m.events, m.lanes, m.control = outer, lanes, control
    m.asked = (node, None)
    m.meet(outcomes, by | _own_failures(m, node))
    m.asked = None


def _end_of_items(m: Machine, node: ast.Try) -> None:
    """Note that the loop around ends with what `next` takes from: `except StopIteration: break`."""
    loop = m.frame.loops[-1].tree if m.frame.loops else None
    if loop is None or not m.ended_by:
        return
    for handler in node.handlers:
        names = ast.unparse(handler.type) if handler.type is not None else ""
        if "StopIteration" in names and isinstance(handler.body[-1], ast.Break):
            loop.varies, loop.taken = loop.varies | m.ended_by, m.ended_in


def _own_failures(m: Machine, node: ast.Try) -> int:
    """Return the cause for which some ranks come from a handler and others do not: the memory of one process ends."""
    texts = (m.frame.module.text(handler) for handler in node.handlers)
    return HOST if any(_OUT_OF_MEMORY.search(text) for text in texts) else 0
