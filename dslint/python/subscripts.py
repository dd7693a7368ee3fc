"""Items and parts of containers: `base[key]`, `base[a:b]`, unpacking."""

from __future__ import annotations

import ast
import re
from typing import Any

from dslint.python import containers, dictionaries, ragged, ranknames, ranktexts, shares, widths
from dslint.python.binding import Arguments
from dslint.python.enums import looked_up, named_items
from dslint.python.heap import ITEMS, LENGTH, UNWRITTEN
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.several import of_each
from dslint.python.special import call_special
from dslint.python.values import (
    LOST_VALUE,
    NOTHING,
    OPAQUE,
    UNKNOWN_LANE,
    Api,
    Atom,
    ClassAtom,
    Const,
    Instance,
    PerRank,
    Tuple,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import DIVERGENT, LOST, RANKED, UNMODELLED

# What checkpoints call the number of steps or epochs that are done.
_PROGRESS = re.compile(
    r"(?:global_|current_|start_|last_|num_)?(?:step|epoch|iter|iteration)s?(?:_num)?|it|samples_seen"
)


def item(m: Machine, base: Value, key: Value, node: ast.AST) -> Value:
    """Return `base[key]`."""
    ranktexts.note_first(m, base, key, node)
    found = of_each(m, base.atoms, lambda atom: _item_of_rank(m, atom, base, key, node))
    if base.varies & DIVERGENT and base.origin is not None:
        found = Value(found.atoms, found.varies, found.shape, found.made_by, found.number, base.origin)
    return found.with_(base.varies, 0, base.made_by)


def _item_of_rank(m: Machine, atom: Atom, base: Value, key: Value, node: ast.AST) -> Value:
    part = _item(m, atom, base, key, node)
    held = m.store.get((atom, ITEMS)) if isinstance(atom, Instance) and atom.cls == "builtins.list" else None
    if held is None or not held.varies & ~part.varies:
        return part
    # Some ranks have put another item there.
    return Value(
        part.atoms, part.varies | held.varies, part.shape, part.made_by, part.number, part.origin or held.origin
    )


def _item(m: Machine, atom: Atom, base: Value, key: Value, node: ast.AST) -> Value:
    computed = apply(m.worlds, lambda a, b: a[b], (one(atom), key))
    if computed is not None:
        return computed
    if isinstance(atom, Tuple):
        return _position(m, list(atom.items), key, node)
    if isinstance(atom, ClassAtom):
        member = looked_up(m, atom, "name", key)
        if member is not None:
            return member
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        named = named_items(m, atom)
        if named is not None:
            return _position(m, named, key, node)
    if isinstance(atom, Instance):
        return _instance_item(m, atom, base, key, node)
    if isinstance(atom, Api):
        from dslint.python.environment import is_environment, variable

        if is_environment(atom):
            return variable(m, key, None, node)
        return m.thing(node, f"item of `{atom.path}`", (key,))
    if isinstance(atom, Unknown):
        kind = atom.kind
        bits = m.varies(base) | m.varies(key)
        return Value(
            frozenset((Unknown(kind, "item of an unknown value"),)), bits, 0, base.made_by, None, m.origin(base)
        )
    return m.thing(node, "item", (one(atom), key))


def _position(m: Machine, items: list[Value], key: Value, node: ast.AST) -> Value:
    """Return one of the items by its position, lane by lane where the position depends on the rank."""
    found = NOTHING
    for atom in key.atoms:
        if isinstance(atom, Const) and isinstance(atom.value, int):
            if -len(items) <= atom.value < len(items):
                found = join(found, items[atom.value], key.varies)
        elif isinstance(atom, PerRank):
            found = join(found, _by_lane(m, items, atom))
        else:
            found = join(found, join_all(items).with_(m.varies(key)))
    return found if found.atoms else unknown(OPAQUE, "no such item")


def _by_lane(m: Machine, items: list[Value], key: PerRank) -> Value:
    values: list[object] = []
    for at in key.values:
        picked = items[at] if isinstance(at, int) and -len(items) <= at < len(items) else None
        single = picked.single if picked is not None else None
        values.append(single.value if isinstance(single, Const) else UNKNOWN_LANE)
    varies = m.worlds.varies(key.values, m.worlds.full)
    if UNKNOWN_LANE in values:
        return join_all(items).with_(varies)
    atom = PerRank(tuple(values))
    return Value(frozenset((atom,)), m.worlds.varies(atom.values, m.worlds.full))


def _instance_item(m: Machine, atom: Instance, base: Value, key: Value, node: ast.AST) -> Value:
    from dslint.python.invoke import call_method

    if atom.cls in containers.LISTS:
        items = containers.exact_items(m, one(atom))
        if items is not None:
            return _position(m, items, key, node)
        found = containers.at_end(m, atom, key.single)
        if found.atoms:
            return found.with_(m.varies(key))
    if atom.cls == "builtins.dict":
        return dictionaries.item_of(m, atom, key, node)
    if not isinstance(atom.cls, str):
        result = call_method(m, one(atom), "__getitem__", [key], node)
        if result is not None:
            return result
    row = m.libraries.method(atom.cls, "__getitem__") if isinstance(atom.cls, str) and atom.cls else None
    if row is not None and row.returns.word == "environment":
        from dslint.python.library import call_row

        return call_row(m, row, Arguments([key]), atom, node, base)
    stored = _stored_items(m, atom, key)
    if stored is not None:
        return stored
    held = _library_items(m, atom)
    if held is not None:
        return held
    ranked = ranknames.item(m, key, node) if not atom.cls else None
    if ranked is not None:
        return ranked
    cls = "torch.Tensor" if atom.cls == "torch.Tensor" else ""
    shape = m.varies(key) if m.store.get((atom, "#parts")) is not None else 0
    is_name = isinstance(key.single, Const) and isinstance(key.single.value, str)
    others = m.store.get((atom, UNWRITTEN)) if is_name else None
    made = m.thing(node, "item of an object", (others or one(atom), key), cls, shape=shape)
    return _progress(m, key, containers.item_of_unknown(m, atom, made))


def _progress(m: Machine, key: Value, found: Value) -> Value:
    """Return how far a run had come as what it is: ranks that go in step have written one number, each in its file."""
    atom = key.single
    name = atom.value if isinstance(atom, Const) else None
    if not isinstance(name, str) or not _PROGRESS.fullmatch(name) or not m.varies(found) & DIVERGENT:
        return found
    return unknown(OPAQUE, f"`{name}` of an object", (m.varies(found) & ~DIVERGENT) | UNMODELLED)


def _library_items(m: Machine, atom: Instance) -> Value | None:
    """Return what a library's kind of dictionary, or a container of its modules, holds, as its row says."""
    found = m.store.get((atom, "#yields")) if isinstance(atom.cls, str) else None
    rows = list(m.libraries.lineage(str(atom.cls))) if found is not None else []
    holds = any(row.path == "builtins.dict" or (row.items and row.items.word == "elements") for row in rows)
    return found.with_(m.varies(one(atom))) if found is not None and holds and found.atoms else None


def _stored_items(m: Machine, atom: Instance, key: Value) -> Value | None:
    """Return what was stored under a constant key of an object of unknown class."""
    single = key.single
    if isinstance(single, Const):
        found = m.store.get((atom, ("key", single.value)))
        return found if found is not None and found.atoms else None
    return None


def sliced(m: Machine, base: Value, parts: list[Value], node: ast.AST) -> Value:
    """Return `base[start:stop:step]`: a part that differs by rank has a shape that may differ by rank."""
    shares.note_slice(m, base, node, parts)
    if parts[1].constants == (1,) and parts[0].constants in ((0,), (None,)):
        ranktexts.note_first(m, base, const(0), node)
    computed = apply(m.worlds, lambda a, i, j, k: a[slice(i, j, k)], (base, *parts))
    if computed is not None:
        return computed
    bits = 0
    for part in parts:
        bits |= m.varies(part)
    wide = bits & ~DIVERGENT | LOST if widths.moves_as_one(m, parts[0], parts[1], node) else bits
    own = call_special(m, base, "__getitem__", [m.thing(node, "slice", parts, "builtins.slice")], node)
    if own is not None:
        return own
    items = containers.exact_items(m, base)
    bounds = [part.single for part in parts]
    if items is not None and all(isinstance(b, Const) for b in bounds):
        ends: list[Any] = [b.value for b in bounds if isinstance(b, Const)]
        cut = items[slice(*ends)]
        kept = base.single
        return one(Tuple(tuple(cut), kept.cls)) if isinstance(kept, Tuple) else containers.new_list(m, node, cut)
    cls = next((a.cls for a in base.atoms if isinstance(a, Instance) and isinstance(a.cls, str)), "")
    if cls in containers.LISTS or isinstance(base.single, Tuple):
        counted = wide | m.shape(base)  # before the part is made: a turn of a loop may make `base` again
        made = containers.new_list(m, node, [], containers.element(m, base, node).with_(bits))
        atom = made.single
        assert isinstance(atom, Instance)
        m.store.set((atom, LENGTH), containers.length_of(m, node, counted))
        _part_of_argv(m, base, parts, atom)
        return made
    if _is_text(base) and not bits & RANKED:
        text = frozenset((Unknown(OPAQUE, "part of a text", "builtins.str"),))
        return Value(text, m.varies(base) | bits, bits, base.made_by, (id(node), m.frame.id, m.turn), m.origin(base))
    keeps = cls if cls in ("torch.Tensor", "numpy.ndarray") else ""
    part = m.thing(node, "part of an unknown value", (base, *parts), keeps, shape=wide)
    # Of as many rows as the data say, fewer than a limit may be left: `mask.nonzero()[:limit]`.
    if keeps and widths.is_cut(m, parts[0], parts[1], node) and ragged.of(m, base) is None:
        part = widths.cut(m, part, node)
    if bits & RANKED:
        m.store.set((part.single, LENGTH), containers.length_of(m, node, bits | m.shape(base)))
    return part


def _part_of_argv(m: Machine, base: Value, parts: list[Value], cut: Instance) -> None:
    """Note that a list is the words of the command line from some place on: `sys.argv[1:]`."""
    whole = m.store.get((base.single, "#argv")) if isinstance(base.single, Instance) else None
    is_rest = whole is not None and whole.constants == (0,) and all(p.constants == (None,) for p in parts[1:])
    m.store.set((cut, "#argv"), parts[0] if is_rest else NOTHING)


def _is_text(value: Value) -> bool:
    return bool(value.atoms) and all(isinstance(a, Unknown) and a.type == "builtins.str" for a in value.atoms)


def unpacked(m: Machine, value: Value, count: int, star: int | None, node: ast.AST) -> list[Value]:
    """Return what the targets of `a, *b, c = value` get."""
    choices = []
    stars: list[tuple[list[Value], Value | None, int]] = []
    for atom in value.atoms:
        items = containers.exact_items(
            m, Value(frozenset((atom,)), value.varies, value.shape, value.made_by, None, value.origin)
        )
        if items is None or (len(items) != count if star is None else len(items) < count - 1):
            any_item = containers.iterated(m, one(atom), node).with_(value.varies, value.shape, value.made_by)
            if isinstance(atom, Unknown) and atom.kind != LOST_VALUE:
                any_item = Value(any_item.atoms, any_item.varies, any_item.shape, any_item.made_by, None, value.origin)
            items = [any_item] * count
            if star is not None:
                bits = containers.counted(m, one(atom)) | value.varies
                stars.append(([], any_item, bits))
                # Those after the star are counted from the end.
                items = [*items[: star + 1], *(item.with_(bits) for item in items[star + 1 :])]
        elif star is not None:
            tail = count - star - 1
            stars.append((items[star : len(items) - tail], None, 0))
            items = [*items[:star], NOTHING, *items[len(items) - tail :]]
        choices.append(items)
    if not choices:
        return [unknown(OPAQUE, "nothing to unpack", LOST)] * count
    found = choices[0]
    for other in choices[1:]:
        found = [join(a, b) for a, b in zip(found, other, strict=True)]
    if star is not None:
        found[star] = _star(m, stars, value.varies, node)
    return found


def _star(m: Machine, parts: list[tuple[list[Value], Value | None, int]], varies: int, node: ast.AST) -> Value:
    """Return the list of a starred target, for the items, others and the causes of another number that it may get."""
    items, rest, bits = parts[0]
    if len(parts) == 1:
        return containers.new_list(m, node, items, rest, counted_by=bits)
    every = join_all(item for items, rest, _ in parts for item in (*items, rest or NOTHING)).with_(varies)
    for *_, more in parts:
        bits |= more
    return containers.new_list(m, node, [], every, counted_by=bits | varies)
