"""Methods of dictionaries: what they give, what they add, and what they take away."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import containers, dictionaries, subscripts, wrappers, writing
from dslint.python.binding import Arguments
from dslint.python.escapes import is_escaped
from dslint.python.heap import REST
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, OPAQUE, Const, Instance, Tuple, Unknown, Value, Written, const, one, unknown
from dslint.python.varies import DIVERGENT

Handler = Callable[[Machine, Instance, Arguments, ast.AST], Value]


def _clear(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    if m.keeps_configs and is_escaped(m, atom):
        dictionaries.drop_some(m, atom)
    elif containers.is_owned(m, atom):
        containers.clear(m, atom)
    else:
        writing.loosen(m, atom)
    return const(None)


def _get(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    if not arguments.positional:
        return m.thing(node, "item of a dictionary", (one(atom),))
    key = arguments.positional[0]
    default = (
        arguments.positional[1] if len(arguments.positional) > 1 else arguments.keywords.get("default", const(None))
    )
    single = key.single
    rest = m.store.get((atom, REST))
    if isinstance(single, Const):
        stored = m.store.get((atom, ("key", single.value)))
        if stored is not None and stored.atoms:
            if not dictionaries.may_lack(m, atom, single.value):
                return stored
            default = _or_absent(m, atom, stored, default)
        if rest is None or not rest.atoms:
            return default
        return _or_absent(m, atom, rest, default)
    return join(dictionaries._dict_item(m, atom, key, node), default)


def _or_absent(m: Machine, atom: Instance, held: Value, default: Value) -> Value:
    """Return what a key may give that may be absent: where ranks have other keys, by what they came to differ."""
    bits = m.shape(one(atom))
    found = join(held, default, bits)
    place = m.origin(one(atom)) if bits & DIVERGENT and found.origin is None else None
    if place is None:
        return found
    return Value(found.atoms, found.varies, found.shape, found.made_by, found.number, place)


def _keys(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    rest = m.store.get((atom, REST))
    keys = [const(key) for key in _live_keys(m, atom)]
    if (rest is None or not rest.atoms) and _is_exact(m, atom):
        return one(Tuple(tuple(keys), "builtins.dict_keys"))
    more = _rest_keys(m, atom, rest)
    return _view(m, atom, node, join_all([*keys, more]), "builtins.dict_keys")


def _rest_keys(m: Machine, atom: Instance, rest: Value | None) -> Value:
    if rest is None or not rest.atoms:
        return NOTHING
    return m.store.get((atom, "#restkeys")) or unknown(OPAQUE, "key of a dictionary", m.varies(rest))


def _is_exact(m: Machine, atom: Instance) -> bool:
    """Return whether the keys of a dictionary and their order are known."""
    is_one = dictionaries.is_ordered(m, atom) and m.content(atom) is None
    return is_one and not any(dictionaries.may_lack(m, atom, k) for k in _live_keys(m, atom))


def _view(m: Machine, atom: Instance, node: ast.AST, item: Value, cls: str) -> Value:
    """Return `d.keys()` and the like of a dictionary with keys that are not all known."""
    bits = m.shape(one(atom))
    origin = m.origin(one(atom))
    content = Value(frozenset((Unknown(OPAQUE, "view of a dictionary"),)), 0, bits, frozenset(), None, origin)
    made = m.made(node, cls, content)
    view = made.single
    assert isinstance(view, Instance)
    m.store.set((view, "#yields"), item.with_(dictionaries.places_vary(m, atom)))
    return made


def _live_keys(m: Machine, atom: Instance) -> list[object]:
    found = []
    for key in dictionaries.known_keys(m, atom):
        stored = m.store.get((atom, ("key", key)))
        if stored is not None and stored.atoms:
            found.append(key)
    return found


def _values(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    rest = m.store.get((atom, REST))
    values = [m.store.get((atom, ("key", key))) or NOTHING for key in _live_keys(m, atom)]
    if (rest is None or not rest.atoms) and _is_exact(m, atom):
        return one(Tuple(tuple(values), "builtins.dict_values"))
    return _view(m, atom, node, join_all([*values, rest or NOTHING]), "builtins.dict_values")


def _pairs(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    rest = m.store.get((atom, REST))
    pairs = [one(Tuple((const(k), m.store.get((atom, ("key", k))) or NOTHING))) for k in _live_keys(m, atom)]
    if (rest is None or not rest.atoms) and _is_exact(m, atom):
        return one(Tuple(tuple(pairs), "builtins.dict_items"))
    keys = join_all([*(const(k) for k in _live_keys(m, atom)), _rest_keys(m, atom, rest)])
    values = join_all([rest or NOTHING, *(m.store.get((atom, ("key", k))) or NOTHING for k in _live_keys(m, atom))])
    return _view(m, atom, node, one(Tuple((keys, values))), "builtins.dict_items")


def _update(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    for value in arguments.positional:
        dictionaries.update_dict(m, atom, value, node)
    for name, value in arguments.keywords.items():
        place = dictionaries.place_of_keyword(arguments, name, node)
        writing.store_item(m, one(atom), const(name), value, node, place)
    if arguments.open_keywords is not None:
        dictionaries.add_unknown_key(m, atom, unknown(OPAQUE, "keyword", 0, 0, "builtins.str"), arguments.open_keywords)
    return const(None)


def _setdefault(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    default = arguments.positional[1] if len(arguments.positional) > 1 else const(None)
    if not arguments.positional:
        return default
    key = arguments.positional[0]
    single = key.single
    place = one(Written(arguments.nodes.get(0, node), arguments.nodes.get(1, node)))
    if isinstance(single, Const):
        found = _get(m, atom, Arguments([key, default]), node)
        had = m.store.get((atom, ("key", single.value)))
        is_there = had is not None and had.atoms and not dictionaries.may_lack(m, atom, single.value)
        if not is_there or not m.keeps_configs:
            place = dictionaries.place_of(m, atom, single.value, node) if had is not None and had.atoms else place
            writing.store_item(m, one(atom), key, found, node, place)
        return found
    writing.store_item(m, one(atom), key, default, node, place)
    return dictionaries._dict_item(m, atom, key, node)


def _pop_key(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    found = _get(m, atom, Arguments(arguments.positional[:2] or [unknown(OPAQUE, "key")]), node)
    single = arguments.positional[0].single if arguments.positional else None
    if isinstance(single, Const):
        if len(arguments.positional) == 1:  # without a default the key is there
            stored = subscripts.item(m, one(atom), arguments.positional[0], node)
            found = stored if stored.atoms else found
        dictionaries.drop_key(m, atom, single.value)
    else:
        dictionaries.drop_some(m, atom, m.varies(arguments.positional[0]) if arguments.positional else 0)
    return found


def _pop_pair(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    pairs = containers.exact_items(m, _pairs(m, atom, Arguments(), node))
    found = pairs[-1] if pairs else containers.element(m, _pairs(m, atom, Arguments(), node), node)
    last = containers.exact_items(m, pairs[-1]) if pairs else None
    if last and last[0].constants:
        dictionaries.drop_key(m, atom, last[0].constants[0])
    else:
        dictionaries.drop_some(m, atom)
    return found if found.atoms else unknown(OPAQUE, "popped from an empty dictionary")


METHODS: dict[str, Handler] = {
    "popitem": _pop_pair,
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _pairs,
    "update": _update,
    "setdefault": _setdefault,
    "pop": _pop_key,
    "clear": _clear,
    "copy": lambda m, atom, arguments, node: wrappers.copied(m, one(atom), node),
}
