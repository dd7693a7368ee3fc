"""What a new object of a library holds: its items, how far their number is the same on all ranks, and its metrics."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from dslint.python import containers, ragged
from dslint.python.binding import Arguments, BoundArguments
from dslint.python.dictionaries import known_keys, may_lack
from dslint.python.events import Event
from dslint.python.generators import turns_of
from dslint.python.heap import CONTENT
from dslint.python.libraries import ClassRow
from dslint.python.machine import Machine
from dslint.python.results import make
from dslint.python.values import NOTHING, OPAQUE, Api, Bound, ClassAtom, Function, Instance, Tuple, Unknown, Value, one
from dslint.python.varies import DATA, DIVERGENT, RANDOM, RANK, RANKED


def contents(m: Machine, row: ClassRow, bound: BoundArguments, receiver: Instance, node: ast.AST) -> None:
    """Say what iterating over a new object gives, and how far its length is the same."""
    lineage = m.libraries.lineage(row.path)
    items = next((r for r in lineage if (r.item_varies, r.items) != (None, None) or r.length_from == "arguments"), None)
    if items is None:
        return
    if items.items is not None and items.items.word == "elements":
        containers.keep(m, receiver, bound.given.get(items.items.name), node)
        return
    varies = (items.item_varies or 0) | _shuffled(m, row, bound)
    if items.item_varies is None and items.items is None:  # what it gives is made of what it got
        for given in bound.given.values():  # a truth value has no items: it says who downloads, or who prints
            varies |= m.varies(containers.element(m, given, node)) if not given.is_truth else 0
    if row.kind == "loader":
        # Samplers, shuffling and worker seeds: what a loader gives is each rank's own.
        varies |= DATA
    if items.items is not None and items.items.word == "from":
        for name in items.items.name.split():
            source = bound.given.get(name)
            if source is not None and source.constants != (None,):
                varies |= m.varies(containers.element(m, source, node))
                break
    elif items.items is not None:
        m.store.set((receiver, "#yields"), make(m, items.items, items.constructor, bound, receiver, node))
    passed = _passed(m, row, bound, node) or _batch(m, row, bound, node)
    if passed is not None:
        m.store.set((receiver, "#yields"), passed)
    elif items.items is None or items.items.word == "from":
        m.store.set((receiver, "#yields"), m.thing(node, f"item of `{row.path}`", varies=varies))
        if varies & DIVERGENT:
            _shapes_differ(m, receiver, varies, node)
    length = items.length | _length_of_sources(m, row, bound, node)
    m.store.set((receiver, CONTENT), Value(frozenset((Unknown(OPAQUE, f"items of `{row.path}`"),)), 0, length))


def options(m: Machine, given: Mapping[str, Value]) -> dict[str, list[Value]]:
    """Return what the dictionaries hold that a call gets as `*_kwargs`, by `name.key`; not what may be missing."""
    found: dict[str, list[Value]] = {}
    for name, value in given.items():
        atom = value.single if name.endswith("_kwargs") else None
        for key in known_keys(m, atom) if isinstance(atom, Instance) and atom.cls == "builtins.dict" else ():
            stored = m.store.get((atom, ("key", key))) if isinstance(atom, Instance) else None
            if stored is not None and isinstance(atom, Instance) and not may_lack(m, atom, key):
                found[f"{name}.{key}"] = [stored]
    return found


def _passed(m: Machine, row: ClassRow, bound: BoundArguments, node: ast.AST) -> Value | None:
    """Return the items of what a progress bar shows, which it hands on."""
    source = bound.given.get("iterable") if row.kind == "progress" else None
    if source is None or source.constants == (None,):
        return None
    return containers.element(m, source, node)


def _batch(m: Machine, row: ClassRow, bound: BoundArguments, node: ast.AST) -> Value | None:
    """Return the batch that a function of the project puts together, where a part of it is ragged."""
    from dslint.python.invoke import call_value
    from dslint.python.loops import items_of

    collate = bound.given.get(row.constructor.extra.get("batched_by", ""))
    source = bound.given.get("dataset")
    if collate is None or source is None or not any(isinstance(a, Function | Bound | Instance) for a in collate.atoms):
        return None
    outer, mark, control, lanes, reached = m.events, m.store.mark(), m.control, m.lanes, m.reached
    m.events, m.reached = [], set()  # nobody sees this run: what the function does is judged where it is seen
    item = items_of(m, source, node, DATA)
    m.collates = True
    try:
        made = call_value(m, collate, Arguments([containers.new_list(m, node, [], item)]), node) if m.alive else NOTHING
    finally:
        m.collates = False
    parts = _ragged_parts(m, made)
    m.store.undo(mark)
    m.events, m.alive, m.control, m.lanes, m.reached = outer, True, control, lanes, reached
    if not parts:
        return None
    whole = m.thing(node, f"item of `{row.path}`", varies=DATA)
    assert isinstance(whole.single, Instance)
    held = {key: ragged.copied(m, node, (str(key), m.frame.id), found) for key, found in parts.items()}
    if isinstance(made.single, Tuple):
        other = [m.thing(node, f"item of `{row.path}`", varies=DATA) for _ in made.single.items]
        return one(Tuple(tuple(held.get(at, value) for at, value in enumerate(other))))
    for key, value in held.items():
        m.store.set((whole.single, ("key", key)), value)
    return whole


def _ragged_parts(m: Machine, made: Value) -> dict[object, ragged.Ragged]:
    """Return why parts of a batch are ragged, by their position or key."""
    atom = made.single
    if isinstance(atom, Tuple):
        parts: list[tuple[object, Value | None]] = list(enumerate(atom.items))
    elif isinstance(atom, Instance) and atom.cls == "builtins.dict":
        parts = [(key, m.store.get((atom, ("key", key)))) for key in known_keys(m, atom)]
    else:
        return {}
    found = {key: ragged.of(m, value) for key, value in parts}
    return {key: why for key, why in found.items() if why is not None}


def _length_of_sources(m: Machine, row: ClassRow, bound: BoundArguments, node: ast.AST) -> int:
    """Return the numbers of ranks by which a length differs that is that of a sampler, data set or list of indices."""
    words = next((r.length_from for r in m.libraries.lineage(row.path) if r.length_from), "")
    names = words.removeprefix("from ").replace(",", " ").split() if words != "arguments" else list(bound.given)
    given = [bound.given[name] for name in names if name in bound.given]
    sources = [value for value in given if value.constants != (None,) and not value.is_truth]
    found = 0
    if words == "arguments":
        stages = [*sources, *bound.extra, *([bound.rest] if bound.rest is not None else ())]
        found |= RANK if any(_deals_out(m, atom, node) for stage in stages for atom in stage.atoms) else 0
    for source in sources[: len(sources) if words == "arguments" else 1]:
        place = m.origin(source)
        if place is not None and isinstance(place[1], ast.If | ast.IfExp):
            continue  # what ranks have made or loaded on ways of their own is mostly the same
        found |= containers.counted(m, source)
        for atom in source.atoms:
            if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
                found |= turns_of(m, atom, node)
    return found & RANKED


def _deals_out(m: Machine, atom: object, node: ast.AST) -> bool:
    """Note a stage of a pipeline that gives each rank a part, a function that is passed to it; return whether it is."""
    row = m.libraries.function(atom.path) if isinstance(atom, Api) else None
    if row is None or "shards-data" not in row.tags:
        return False
    m.events.append(Event(row.path, row.tags, node, m.frame.module, None, {}, None, m.lanes))
    return True


def _shuffled(m: Machine, row: ClassRow, bound: BoundArguments) -> int:
    """Return `RANDOM` where items come in a random order that no seed makes the same."""
    extra = row.constructor.extra
    test = bound.given.get(extra["shuffle"]) if "shuffle" in extra else None
    if test is None or not m.truth(test)[0]:
        return 0
    seeds = [bound.given.get(extra[key]) for key in ("seed", "generator") if key in extra]
    return 0 if any(s is not None and s.constants != (None,) for s in seeds) else RANDOM


def _shapes_differ(m: Machine, receiver: Instance, varies: int, node: ast.AST) -> None:
    inner = m.store.get((receiver, "#yields"))
    atom = inner.single if inner is not None else None
    old = m.content(atom) if isinstance(atom, Instance) else None
    if old is not None:
        shape = DATA if varies & DATA else 0
        m.store.set((atom, CONTENT), Value(old.atoms, old.varies, shape, old.made_by, None, (m.frame.module, node)))


def added_up(m: Machine, receiver: Instance, bound: BoundArguments, node: ast.AST) -> None:
    """Let an object that adds up what it is given differ between the ranks as this does: a metric of a library."""
    given = [*bound.given.values(), *bound.extra, *bound.extra_keywords.values()]
    held = m.store.get((receiver, CONTENT)) or Value(frozenset((Unknown(OPAQUE, "what was added up"),)))
    varies, origin = held.varies, held.origin
    for value in given:
        found = m.varies(value)
        varies |= found
        origin = origin or (m.origin(value) if found & DATA else None)
    if varies != held.varies:
        m.store.set((receiver, CONTENT), Value(held.atoms, varies, held.shape, held.made_by, None, origin))
