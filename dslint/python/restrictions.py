"""Functions that do something on some ranks only: `@rank_zero_only`, `accelerator.on_main_process`, and their like."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python.binding import Arguments
from dslint.python.events import Alt, Seq
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.results import Place
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Const, Function, PerRank, Value, const, one


def lanes_of(m: Machine, row: Row, place: Place) -> int | None:
    """Return the lanes on which a row does something; `None` when nobody knows."""
    form = row.extra.get("runs_on", "")
    word, _, name = form.partition(" ")
    if word == "last-rank":
        return m.worlds.mask(lambda lane: m.worlds.lanes[lane][0] == m.worlds.lanes[lane][3] - 1)
    column = {"is-rank": 0, "rank": 0, "is-local-rank": 1, "local-rank": 1}.get(word)
    if column is None:
        return None
    if word.startswith("is-"):
        return m.worlds.mask(lambda lane: m.worlds.lanes[lane][column] == int(name))
    wanted = place.given(name).single
    if isinstance(wanted, Const) and isinstance(wanted.value, int):
        number = wanted.value
        return m.worlds.mask(lambda lane: m.worlds.lanes[lane][column] == number)
    if isinstance(wanted, PerRank):
        values = wanted.values
        return m.worlds.mask(lambda lane: values[lane] == m.worlds.lanes[lane][column])
    return None


def lanes_of_call(m: Machine, row: Row, place: Place, result: Value) -> int:
    """Return the lanes on which a call does something; a decorator gives them to the function that it decorates."""
    if "runs_on" not in row.extra or "hook" in row.tags:
        return m.lanes
    mask = lanes_of(m, row, place)
    if mask is None:
        return m.lanes
    if "decorator" in row.tags:
        restrict(m, result, mask)
        return m.lanes
    return m.lanes & mask


def restrict(m: Machine, value: Value, lanes: int) -> None:
    """Remember that functions run on some lanes only: a decorator says so."""
    for atom in value.atoms:
        if isinstance(atom, Function):
            m.program.noted.runs_on[atom] = lanes


def restricted(
    m: Machine, function: Function, arguments: Arguments, node: ast.AST, owner: ClassAtom | None,
    on_yield: Callable[[Value], None] | None,
) -> Value | None:  # fmt: skip
    """Return the result of calling a function that runs on some lanes only; `None` where it runs on all of these."""
    from dslint.python.frames import call_function

    mask = m.program.noted.runs_on.get(function)
    if mask is None or not m.lanes & ~mask:
        return None
    place = (function.module, function.node)  # where the decorator stands
    return on_lanes(m, mask, place, lambda: call_function(m, function, arguments, node, owner, on_yield))


def on_lanes(m: Machine, mask: int, place: tuple[Module, ast.AST], call: Callable[[], Value]) -> Value:
    """Return the result of a call that some lanes make only; it is `None` on the others."""
    if not m.lanes & ~mask:
        return call()
    test = one(PerRank(tuple(bool(mask >> lane & 1) for lane in range(m.worlds.count))))
    inside, outside = m.lanes & mask, m.lanes & ~mask
    module, node = place
    alt = Alt(node, module, test, inside, outside, m.split_varies(mask), Seq(), Seq())
    results: list[Value] = []
    m.branch(alt, lambda: results.append(call()), lambda: None)
    if alt.then.items:
        m.events.append(alt)
    nothing = const(None)
    return m.selected(results[0], inside, nothing, outside, 0) if results and results[0].atoms else nothing
