"""Lists, tuples, dictionaries and sets: what they hold, item by item where that is known.

A list whose length is known keeps a tuple in its `ITEMS` cell; other elements are joined in `REST`. A dictionary has a
cell for each constant key. `LENGTH` says how far the number of elements is the same on all ranks.
"""

from __future__ import annotations

import ast
from typing import Any

from dslint.python import dictionaries, writing
from dslint.python.enums import members_of, named_items
from dslint.python.heap import ESCAPED, ITEMS, LENGTH, REST
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.special import call_special
from dslint.python.values import (
    NOTHING,
    OPAQUE,
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
from dslint.python.varies import OWN, RANKED

_MAX_ITEMS = 24
# The head of the symbolic number that is the length of a list which a range has made.
ENTRIES = "entries"
LISTS = ("builtins.list", "collections.deque")


def new_list(
    m: Machine,
    node: ast.AST,
    items: list[Value],
    rest: Value | None = None,
    cls: str = "builtins.list",
    counted_by: int = 0,
) -> Value:
    """Return a new list with these items, and others that `rest` describes; their number differs by `counted_by`."""
    made = m.made(node, cls)
    atom = made.single
    assert isinstance(atom, Instance)
    clear(m, atom)
    if rest is None and not items and isinstance(node, ast.List) and is_registry(m):
        rest = REGISTERED
    if rest is None and len(items) <= _MAX_ITEMS:
        m.store.set((atom, ITEMS), one(Tuple(tuple(items))))
    else:
        m.store.set((atom, ITEMS), NOTHING)
        m.store.set((atom, REST), join_all([*items, rest] if rest is not None else items))
        if rest is not None:
            m.store.set((atom, LENGTH), length_of(m, node, counted_by))
    return made


# What a list or dictionary may hold that another module fills which is not read for a question.
REGISTERED = unknown(OPAQUE, "what other modules put there")


def is_registry(m: Machine) -> bool:
    """Return whether an empty display stands in the body of a module whose importers may not be read (`focus.py`)."""
    return m.program.focus is not None and m.frame.function is None and m.frame.module.absolute != m.program.main


def length_of(m: Machine, node: ast.AST, varies: int, *, is_filtered: bool = False) -> Value:
    """Return an unknown number of items; where it differs by rank, `node` has given each rank its share.

    Where it is filtered, a test in `node` decides about each item.
    """
    origin = (m.frame.module, node) if varies & RANKED or (is_filtered and varies & OWN) else None
    return Value(frozenset((Unknown(OPAQUE, "length", "builtins.int"),)), varies, 0, frozenset(), None, origin)


def new_set(m: Machine, node: ast.AST, values: list[Value], counted_by: int = 0) -> Value:
    """Return a new set that holds these values; which of them, differs by `counted_by`."""
    made = m.made(node, "builtins.set")
    atom = made.single
    assert isinstance(atom, Instance)
    clear(m, atom)
    m.store.set((atom, REST), join_all(values))
    if counted_by:
        _set_length(m, made, counted_by)
    return made


def clear(m: Machine, atom: Instance) -> None:
    """Forget what an object held: it is new, or was emptied."""
    m.store.set((atom, ITEMS), one(Tuple(())) if atom.cls in LISTS else NOTHING)
    if m.store.get((atom, REST)) is not None:
        m.store.set((atom, REST), NOTHING)
    m.store.set((atom, LENGTH), NOTHING)
    for key in dictionaries.known_keys(m, atom):
        m.store.set((atom, ("key", key)), NOTHING)
        if dictionaries.may_lack(m, atom, key):
            m.store.set((atom, ("maybe", key)), NOTHING)
    if atom.cls == "builtins.dict" and m.store.get((atom, "#restkeys")) is not None:
        m.store.set((atom, "#restkeys"), NOTHING)
    m.store.set((atom, "#keys"), one(Tuple(())))
    if m.keeps_configs and m.store.get((atom, ESCAPED)) is not None:
        m.store.set((atom, ESCAPED), NOTHING)  # the object that other code has is another one


_TRUE = const(True)


def is_owned(m: Machine, atom: Instance) -> bool:
    """Return whether an object stands for one object only, so that a write replaces what was there."""
    if not atom.loop:
        return True
    frame = m.frame
    while frame is not None:
        if any(state.number == atom.loop for state in frame.loops):
            return True
        frame = frame.parent  # type: ignore[assignment]
    return False


def exact_items(m: Machine, value: Value) -> list[Value] | None:
    """Return the items of a tuple or list whose length is known."""
    atom = value.single
    if isinstance(atom, Tuple):
        return [item.with_(value.varies, value.shape, value.made_by) for item in atom.items]
    if isinstance(atom, Const) and isinstance(atom.value, str) and len(atom.value) <= 8:
        return [const(letter) for letter in atom.value]
    if isinstance(atom, ClassAtom):
        return members_of(m, atom)
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        return named_items(m, atom)
    if isinstance(atom, Instance) and (atom.cls in LISTS or atom.cls == "builtins.iterator"):
        rest = m.store.get((atom, REST))
        items = m.store.get((atom, ITEMS))
        inner = items.single if items is not None else None
        if isinstance(inner, Tuple) and (rest is None or not rest.atoms) and items is not None:
            if atom.cls == "builtins.iterator":
                writing.loosen(m, atom)  # whoever asks for the items takes them
            return [item.with_(value.varies | items.varies, 0, value.made_by) for item in inner.items]
    return None


def entries_of(m: Machine, atom: Atom) -> int | None:
    """Return the number of items of a list or tuple where it is known, of a longer list that a range has made, too."""
    items = exact_items(m, one(atom))
    if items is not None:
        return len(items)
    length = m.store.get((atom, LENGTH)) if isinstance(atom, Instance) else None
    number = length.number if length is not None else None
    if isinstance(number, tuple) and number[0] == ENTRIES and isinstance(number[1], Const):
        return int(str(number[1].value))
    return None


def new_iterator(m: Machine, node: ast.AST, items: list[Value]) -> Value:
    """Return an iterator that gives these items, once."""
    made = m.made(node, "builtins.iterator")
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, REST), NOTHING)
    m.store.set((atom, LENGTH), NOTHING)
    m.store.set((atom, "#yields"), NOTHING)
    m.store.set((atom, ITEMS), one(Tuple(tuple(items))))
    return made


def open_iterator(m: Machine, node: ast.AST, item: Value, counted: int, origin: Any = None) -> Value:
    """Return an iterator that gives an unknown number of items."""
    content = Value(frozenset((Unknown(OPAQUE, "iterator"),)), 0, counted, frozenset(), None, origin)
    made = m.made(node, "builtins.iterator", content)
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, ITEMS), NOTHING)
    m.store.set((atom, REST), NOTHING)
    m.store.set((atom, "#yields"), item)
    return made


def take(m: Machine, value: Value) -> Value | None:
    """Return the next item of an iterator whose items are known, and take it away; `None` for any other."""
    atom = value.single
    if not isinstance(atom, Instance) or atom.cls != "builtins.iterator" or not is_owned(m, atom):
        return None
    items = m.store.get((atom, ITEMS))
    inner = items.single if items is not None else None
    rest = m.store.get((atom, REST))
    if not isinstance(inner, Tuple) or not inner.items or (rest is not None and rest.atoms):
        return None
    m.store.set((atom, ITEMS), one(Tuple(inner.items[1:])))
    return inner.items[0]


def element(m: Machine, value: Value, node: ast.AST) -> Value:
    """Return what any element of an iterable may be."""
    found = NOTHING
    for atom in value.atoms:
        found = join(found, _element(m, atom, value, node))
    return found.with_(value.varies, 0, value.made_by)


def at_end(m: Machine, atom: Instance, at: Atom | None) -> Value:
    """Return any item of a list: the one at `at`, which differs where it is counted from ends that differ."""
    found = join_all(m.elements(atom))
    is_last = isinstance(at, Const) and isinstance(at.value, int) and at.value < 0
    is_one = isinstance(found.single, Const | Instance)
    return found.with_(m.shape(one(atom))) if is_last and not is_one else found


def iterated(m: Machine, value: Value, node: ast.AST) -> Value:
    """Return what an iteration over a value gives, with what it does: `__iter__` and generators run."""
    from dslint.python.loops import items_of

    call_special(m, value, "__len__", [], node)  # Python asks how many there may be
    return items_of(m, value, node)


def keep(m: Machine, receiver: Instance, held: Value | None, node: ast.AST, *, is_item: bool = False) -> None:
    """Add what an iteration over a value gives (or the value) to what iterating over a library's container gives."""
    if held is None or held.constants == (None,):
        return
    more, known = held if is_item else iterated(m, held, node), m.store.get((receiver, "#yields"))
    found = join(known, more) if known is not None else more
    if found.atoms and found != known:
        m.store.set((receiver, "#yields"), found)


def held(m: Machine, value: Value, depth: int = 3) -> list[Value]:
    """Return what lists and dictionaries hold, and what those inside of them do."""
    found: list[Value] = []
    for atom in value.atoms if depth else ():
        inner = m.elements(atom) if isinstance(atom, Instance) else atom.items if isinstance(atom, Tuple) else ()
        for item in inner:
            found += [item, *held(m, item, depth - 1)]
    return found


def _element(m: Machine, atom: Atom, value: Value, node: ast.AST) -> Value:
    if isinstance(atom, Tuple):
        return join_all(atom.items)
    if isinstance(atom, Const):
        if isinstance(atom.value, str):
            return (
                join_all(const(c) for c in atom.value)
                if len(atom.value) <= 8
                else unknown(OPAQUE, "letter", 0, 0, "builtins.str")
            )
        return unknown(OPAQUE, "element of a constant")
    if isinstance(atom, PerRank):
        return unknown(OPAQUE, "element of a value by rank", value.varies)
    if isinstance(atom, Instance):
        return _instance_element(m, atom, node)
    if isinstance(atom, Unknown):
        return Value(frozenset((Unknown(atom.kind, "element of an unknown value"),)), m.varies(value))
    if isinstance(atom, Api):
        return unknown(OPAQUE, f"element of `{atom.path}`")
    return m.thing(node, "element of an unknown value", (one(atom),))


def _instance_element(m: Machine, atom: Instance, node: ast.AST) -> Value:
    if atom.cls in LISTS or atom.cls in ("builtins.set", "builtins.tuple", "builtins.iterator"):
        found = join_all(m.elements(atom))
        if found.atoms:
            return found
        if m.content(atom) is None:
            return NOTHING
    if atom.cls == "builtins.dict":
        keys = join_all(
            [*(const(key) for key in dictionaries.known_keys(m, atom)), m.store.get((atom, "#restkeys")) or NOTHING]
        )
        if keys.atoms or m.content(atom) is None:
            return keys.with_(dictionaries.places_vary(m, atom))
    yields = m.store.get((atom, "#yields"))
    if yields is not None and (yields.atoms or atom.cls == "builtins.iterator"):
        return yields
    content = m.content(atom)
    varies = content.varies if content is not None else 0
    return item_of_unknown(m, atom, m.thing(node, "element of an object", (one(atom),), varies=varies))


def item_of_unknown(m: Machine, atom: Instance, item: Value) -> Value:
    """Note of which object of an unknown class something is an item, and return it."""
    if not atom.cls and isinstance(item.single, Instance):
        m.parts[item.single] = atom
    return item


def counted(m: Machine, value: Value) -> int:
    """Return the causes for which ranks may see a different number of elements."""
    found = m.shape(value)
    for atom in value.atoms:
        if isinstance(atom, PerRank):
            found |= m.worlds.varies(atom.values, m.worlds.full)
    if len(value.atoms) > 1:
        found |= value.varies
    return found


def taken(m: Machine, value: Value, node: ast.AST) -> int:
    """Return the causes for which ranks may take a different number of elements, also from the project's objects."""
    from dslint.python.generators import turns_of

    found = counted(m, value)
    for atom in value.atoms:
        if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom) and named_items(m, atom) is None:
            found |= turns_of(m, atom, node) & RANKED
    return found


def concatenated(m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Value | None:
    """Return `list + list`, `tuple + tuple` and `list * number`."""
    if op is ast.Add:
        first, second = exact_items(m, left), exact_items(m, right)
        tuples = all(isinstance(side.single, Tuple) and side.single.is_tuple for side in (left, right))
        if tuples and first is not None and second is not None:
            return one(Tuple((*first, *second)))
        if _is_list(left) and _is_list(right):
            if first is not None and second is not None:
                return new_list(m, node, [*first, *second])
            bits = m.shape(left) | m.shape(right)  # before it is made: a turn of a loop may make one of them again
            both = join(element(m, left, node), element(m, right, node)).with_(m.shape(left))
            made = new_list(m, node, [], both)
            _set_length(m, made, bits)
            return made
    if op is ast.Mult and (_is_list(left) or isinstance(left.single, Tuple)):
        number = right.single
        items = exact_items(m, left)
        if (
            items is not None
            and isinstance(number, Const)
            and isinstance(number.value, int)
            and number.value * len(items) <= _MAX_ITEMS
        ):
            many = items * max(number.value, 0)
            return one(Tuple(tuple(many))) if isinstance(left.single, Tuple) else new_list(m, node, many)
        if _is_list(left):
            bits = m.shape(left) | m.varies(right)
            made = new_list(m, node, [], element(m, left, node))
            _set_length(m, made, bits)
            return made
    return None


def _set_length(m: Machine, made: Value, varies: int) -> None:
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, LENGTH), unknown(OPAQUE, "length", varies, 0, "builtins.int"))


def _is_list(value: Value) -> bool:
    return bool(value.atoms) and all(isinstance(a, Instance) and a.cls in LISTS for a in value.atoms)


def lacks_by_rank(m: Machine, value: Value, key: object) -> int:
    """Return the numbers of ranks by which a key of a dictionary is there on some ranks only."""
    found = 0
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom.cls == "builtins.dict" and dictionaries.may_lack(m, atom, key):
            found |= m.shape(one(atom)) & RANKED
    return found


def contains(m: Machine, left: Value, right: Value) -> Value | None:
    """Decide `left in right` for a display of constants."""
    items = exact_items(m, right)
    atom = right.single
    if items is None and isinstance(atom, Instance) and atom.cls == "builtins.set":
        rest = m.store.get((atom, REST))
        if rest is not None and rest.constants is not None:
            items = [const(v) for v in rest.constants]
    if items is None and isinstance(atom, Instance) and atom.cls == "builtins.dict":
        rest = m.store.get((atom, REST))
        names = dictionaries.known_keys(m, atom)
        if (rest is None or not rest.atoms) and m.content(atom) is None:
            present = {k: m.store.get((atom, ("key", k))) for k in names}
            if all(v is not None and v.atoms and not dictionaries.may_lack(m, atom, k) for k, v in present.items()):
                items = [const(k) for k in names]
            else:
                return None
    if items is None or any(item.constants is None for item in items):
        return None
    constants = {c for item in items for c in (item.constants or ())}
    if any(len(item.constants or ()) != 1 for item in items):
        return None
    found = apply(m.worlds, lambda value: value in constants, (left,))
    if found is not None and m.varies(right) & ~RANKED:
        return found.with_(m.varies(right))
    return found
