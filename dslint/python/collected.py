"""Builtins that make or fold collections: `list`, `dict`, `zip`, `any`."""

from __future__ import annotations

import ast

from dslint.python import containers, dictionaries, functions, setorders, turns
from dslint.python.binding import Arguments
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.values import NOTHING, OPAQUE, Const, Instance, Tuple, Unknown, Value, Written, const, one, unknown


def _enumerate(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = functions._first(arguments)
    if value is None:
        return None
    items = containers.exact_items(m, value)
    start = arguments.keywords.get("start") or (arguments.positional[1] if len(arguments.positional) > 1 else const(0))
    first = start.single
    if items is not None and isinstance(first, Const) and isinstance(first.value, int):
        pairs = [one(Tuple((const(at), item))) for at, item in enumerate(items, first.value)]
        return containers.new_iterator(m, node, pairs)
    number = turns.counting(m, unknown(OPAQUE, "number of an item", m.varies(start), 0, "builtins.int"), start)
    from dslint.python.loops import items_of

    pair = one(Tuple((number, items_of(m, value, node))))
    made = containers.open_iterator(m, node, pair, containers.counted(m, value), m.origin(value))
    if isinstance(made.single, Instance):
        m.store.set((made.single, setorders.NUMBERED), value)
    return made


def _zip(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.loops import items_of

    if arguments.rest is not None:
        return None
    columns = [containers.exact_items(m, value) for value in arguments.positional]
    if columns and all(c is not None for c in columns):
        rows = zip(*[c for c in columns if c is not None])  # noqa: B905
        return containers.new_iterator(m, node, [one(Tuple(tuple(row))) for row in rows])
    bits = 0
    for value in arguments.positional:
        bits |= containers.counted(m, value)
    row = one(Tuple(tuple(items_of(m, value, node) for value in arguments.positional)))
    return containers.open_iterator(m, node, row, bits)


def _listed(cls: str) -> functions.Special:
    """Return the handler of `list(...)`, `tuple(...)`, `set(...)`, `sorted(...)`, `reversed(...)`."""

    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        from dslint.python.loops import items_of
        from dslint.python.special import call_special

        value = functions._first(arguments)
        if value is None:
            if cls == "builtins.tuple":
                return one(Tuple(()))
            return containers.new_list(m, node, []) if cls != "builtins.set" else containers.new_set(m, node, [])
        items = containers.exact_items(m, value)
        if items is not None and cls in ("builtins.list", "builtins.tuple", "reversed"):
            if cls == "reversed":
                return containers.new_iterator(m, node, items[::-1])
            return one(Tuple(tuple(items))) if cls == "builtins.tuple" else containers.new_list(m, node, items)
        if cls != "builtins.set":
            call_special(m, value, "__len__", [], node)  # Python asks how many there may be
        element = items_of(m, value, node)
        bits = containers.taken(m, value, node)
        if cls == "builtins.set":
            return containers.new_set(m, node, [element], bits)
        if cls == "reversed":
            return containers.open_iterator(m, node, element, bits)
        made = containers.new_list(m, node, [], element, "builtins.list" if cls != "builtins.tuple" else cls)
        setorders.followed(m, value, made, node)
        atom = made.single
        assert isinstance(atom, Instance)
        m.store.set(
            (atom, "#length"),
            Value(frozenset((Unknown(OPAQUE, "length", "builtins.int"),)), bits, 0, frozenset(), None, m.origin(value)),
        )
        return made

    return handler


def _deque(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = functions._first(arguments)
    items = containers.exact_items(m, value) if value is not None else []
    rest = containers.iterated(m, value, node) if value is not None and items is None else None
    made = containers.new_list(m, node, items or [], rest, "collections.deque")
    atom = made.single
    assert isinstance(atom, Instance)
    if "maxlen" in arguments.keywords or len(arguments.positional) > 1:  # old items go where new ones come
        m.store.set((atom, "#items"), NOTHING)
        m.store.set((atom, "#rest"), join_all([*(items or []), rest or NOTHING]))
    return made


def _dict(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    parts: list[tuple[Value | None, Value, Value]] = []
    value = functions._first(arguments)
    if value is not None:
        parts.append((None, value, one(Written(node, node))))
    for name, item in arguments.keywords.items():
        parts.append((const(name), item, dictionaries.place_of_keyword(arguments, name, node)))
    if arguments.open_keywords is not None:
        parts.append((unknown(OPAQUE, "keyword", 0, 0, "builtins.str"), arguments.open_keywords, NOTHING))
    return dictionaries.made_of(m, node, parts)


def _from_keys(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `dict.fromkeys(keys, value)`."""
    from dslint.python.loops import items_of

    if not 1 <= len(arguments.positional) <= 2 or arguments.rest is not None:
        return None
    keys, value = (*arguments.positional, const(None))[:2]
    items, place = containers.exact_items(m, keys), one(Written(node, node))
    if items is not None:
        return dictionaries.made_of(m, node, [(key, value, place) for key in items])
    counted = containers.counted(m, keys)
    key = items_of(m, keys, node).with_(counted)
    made = dictionaries.made_of(m, node, [])
    if key.atoms and isinstance(made.single, Instance):
        dictionaries.add_unknown_key(m, made.single, key, value, counted)
    return made


def _default_dict(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return `collections.defaultdict(factory, ...)`: a dictionary that makes what it lacks."""
    if arguments.rest is not None:
        return None
    factory, others = arguments.positional[:1], arguments.positional[1:]
    keywords = {k: v for k, v in arguments.keywords.items() if k != "default_factory"}
    given = Arguments(others, keywords, open_keywords=arguments.open_keywords)
    made = _dict(m, given, node)
    if made is not None and isinstance(made.single, Instance):
        default = [*factory, *(v for k, v in arguments.keywords.items() if k == "default_factory")]
        m.store.set((made.single, dictionaries.FACTORY), default[0] if default else const(None))
    return made


def _any_all(name: str) -> functions.Special:
    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        from dslint.python.arithmetic import scalar
        from dslint.python.loops import items_of

        value = functions._first(arguments)
        if value is None:
            return None
        items = containers.exact_items(m, value)
        if items is not None and len(items) <= 6:
            found = apply(m.worlds, lambda *values: (any if name == "any" else all)(values), items)
            if found is not None:
                return found
        element = items_of(m, value, node)
        return scalar(m, (element, value), "builtins.bool").with_(m.shape(value))

    return handler


def _next(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.loops import items_of, makers
    from dslint.python.special import call_special

    value = functions._first(arguments)
    if value is None:
        return None
    own = call_special(m, value, "__next__", [], node)
    if own is not None:
        if m.frame.loops and m.frame.loops[-1].tree is not None:
            m.frame.loops[-1].tree.items |= makers(own)
        return join(own, arguments.positional[1]) if len(arguments.positional) > 1 else own
    taken = containers.take(m, value)
    if taken is not None:
        return taken
    found = items_of(m, value, node)
    if len(arguments.positional) == 1:
        m.ended_by, m.ended_in = m.ended_by | containers.counted(m, value), node
    if m.frame.loops and m.frame.loops[-1].tree is not None:
        m.frame.loops[-1].tree.items |= makers(found)
        place = m.origin(found)
        if place is not None:  # a part of what a loader gives: `yield batch["x"]`
            m.frame.loops[-1].tree.items |= {place[1]}
    return join(found, arguments.positional[1]) if len(arguments.positional) > 1 else found


def _iter(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.loops import items_of, makers
    from dslint.python.special import call_special

    value = functions._first(arguments)
    if value is None or len(arguments.positional) > 1:
        return None
    own = call_special(m, value, "__iter__", [], node)
    if own is not None:
        return own
    atom = value.single
    if isinstance(atom, Instance) and atom.cls in ("builtins.iterator", "builtins.generator"):
        return value
    items = containers.exact_items(m, value)
    if items is not None:
        return containers.new_iterator(m, node, items)
    item = items_of(m, value, node)
    for state in m.frame.loops:
        if state.tree is not None:
            state.tree.begun |= makers(item)
    if m.frame.function is not None and getattr(m.frame.function.node, "name", "") == "__next__":
        m.restarts |= makers(item)
    return containers.open_iterator(m, node, item, containers.counted(m, value), m.origin(value))
