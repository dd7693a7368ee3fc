"""Methods of builtin types: texts are computed, lists and dictionaries change what they hold."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import containers, dictionaries, subscripts, texts, writing
from dslint.python.binding import Arguments
from dslint.python.escapes import is_escaped
from dslint.python.heap import ITEMS, REST
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    Atom,
    Const,
    Instance,
    PerRank,
    Tuple,
    Unknown,
    Value,
    Written,
    const,
    one,
    unknown,
)

_TEXT_RESULTS = {
    "split": "builtins.list", "rsplit": "builtins.list", "splitlines": "builtins.list", "startswith": "builtins.bool",
    "endswith": "builtins.bool", "isdigit": "builtins.bool", "isalpha": "builtins.bool", "isnumeric": "builtins.bool",
    "islower": "builtins.bool", "isupper": "builtins.bool", "find": "builtins.int", "rfind": "builtins.int",
    "count": "builtins.int", "index": "builtins.int", "encode": "builtins.bytes", "partition": "", "rpartition": "",
}  # fmt: skip


def call_builtin_method(
    m: Machine, receiver: Atom, base: Value, name: str, arguments: Arguments, node: ast.AST
) -> Value | None:
    """Return the result of a method of a builtin type; `None` when it is none that is known."""
    if isinstance(receiver, Instance):
        if receiver.cls in (*containers.LISTS, "builtins.set"):
            handler = _LIST.get(name)
        elif receiver.cls == "builtins.dict":
            handler = _DICT.get(name)
        elif receiver.cls == "builtins.generator":
            handler = _GENERATOR.get(name)
        else:
            handler = None
        if name in _CHANGES:
            writing.note_change(m, receiver)
        return handler(m, receiver, arguments, node) if handler is not None else None
    if isinstance(receiver, Const | PerRank | Tuple):
        return _constant_method(m, receiver, base, name, arguments, node)
    if isinstance(receiver, Unknown) and receiver.type == "builtins.str" and hasattr(str, name):
        return _text_result(m, base, name, arguments, node)
    if isinstance(receiver, Unknown) and receiver.type in ("builtins.int", "builtins.float", "builtins.bool"):
        from dslint.python.arithmetic import scalar

        return (
            scalar(m, (base, *arguments.all()), receiver.type) if hasattr(float, name) or hasattr(int, name) else None
        )
    return None


def _constant_method(
    m: Machine, receiver: Atom, base: Value, name: str, arguments: Arguments, node: ast.AST
) -> Value | None:
    kind = receiver.kind if isinstance(receiver, Const) else tuple if isinstance(receiver, Tuple) else str
    if isinstance(receiver, Tuple) and not receiver.is_tuple:
        return m.thing(node, f"`{name}` of a `{receiver.cls}`", (one(receiver), *arguments.all()))
    if not hasattr(kind, name) or arguments.rest is not None or arguments.open_keywords is not None:
        return m.thing(node, f"`{name}` of a constant", (one(receiver), *arguments.all()))
    if not arguments.keywords:
        if name == "join" and len(arguments.positional) == 1:
            items = containers.exact_items(m, arguments.positional[0])
            if items is not None:
                found = apply(m.worlds, lambda s, *parts: s.join(parts), (one(receiver), *items))
                if found is not None:
                    return found
        if name in ("split", "rsplit", "splitlines"):
            found = apply(m.worlds, lambda s, *a: tuple(getattr(s, name)(*a)), (one(receiver), *arguments.positional))
            atom = found.single if found is not None else None
            if isinstance(atom, Tuple):
                return containers.new_list(m, node, list(atom.items))
        else:
            found = apply(m.worlds, lambda s, *a: getattr(s, name)(*a), (one(receiver), *arguments.positional))
            if found is not None:
                return found
    made = texts.by_format(m, one(receiver), arguments, node) if name == "format" else None
    return made if made is not None else _text_result(m, base if base.atoms else one(receiver), name, arguments, node)


def _text_result(m: Machine, base: Value, name: str, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.arithmetic import scalar

    kind = _TEXT_RESULTS.get(name, "builtins.str")
    operands = (base, *arguments.all())
    if kind == "builtins.list":
        made = containers.new_list(m, node, [], scalar(m, operands, "builtins.str"))
        atom = made.single
        assert isinstance(atom, Instance)
        bits = 0
        for operand in operands:
            bits |= m.varies(operand)
        m.store.set((atom, "#length"), unknown(OPAQUE, "length", bits, 0, "builtins.int"))
        return made
    if not kind:
        return m.thing(node, f"`{name}` of a text", operands)
    return scalar(m, operands, kind)


def _append(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    for value in arguments.positional[-1:]:
        writing.append(m, atom, value, node)
    return const(None)


def _extend(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    for value in arguments.positional:
        writing.extend(m, atom, value, node)
    return const(None)


def _insert(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    writing.loosen(m, atom)
    return _append(m, atom, arguments, node)


def _reorder(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    writing.loosen(m, atom)
    return const(None)


def _sort(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.higher import sort_in_place

    sort_in_place(m, atom, arguments, node)
    return const(None)


def _pop(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    items = containers.exact_items(m, one(atom))
    at = arguments.positional[0].single if arguments.positional else Const(-1)
    if items and isinstance(at, Const) and isinstance(at.value, int) and -len(items) <= at.value < len(items):
        found = items.pop(at.value)
        if containers.is_owned(m, atom):
            m.store.set((atom, ITEMS), one(Tuple(tuple(items))))
            return found
    found = join_all(m.elements(atom))
    writing.loosen(m, atom)
    m.store.set((atom, "#length"), writing._length(m, atom, 0))
    return found if found.atoms else unknown(OPAQUE, "popped from an empty list")


def _clear(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    if atom.cls == "builtins.dict" and m.keeps_configs and is_escaped(m, atom):
        dictionaries.drop_some(m, atom)
    elif containers.is_owned(m, atom):
        containers.clear(m, atom)
    else:
        writing.loosen(m, atom)
    return const(None)


def _copy(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.wrappers import copied

    return copied(m, one(atom), node)


def _index(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.arithmetic import scalar

    return scalar(m, (one(atom), *arguments.all()), "builtins.int")


def _other_set(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    values = [containers.element(m, v, node) for v in arguments.positional]
    return containers.new_set(m, node, [*m.elements(atom), *values])


def _tested(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.arithmetic import scalar

    return scalar(m, (one(atom), *arguments.all()), "builtins.bool")


# Methods that change a list in place.
_CHANGES = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "reverse", "sort"})
Handler = Callable[[Machine, Instance, Arguments, ast.AST], Value]
_LIST: dict[str, Handler] = {
    "append": _append,
    "appendleft": _insert,
    "add": _append,
    "extend": _extend,
    "extendleft": _extend,
    "update": _extend,
    "insert": _insert,
    "sort": _sort,
    "reverse": _reorder,
    "remove": _reorder,
    "discard": _reorder,
    "rotate": _reorder,
    "pop": _pop,
    "popleft": lambda m, atom, arguments, node: _pop(m, atom, Arguments([const(0)]), node),
    "clear": _clear,
    "copy": _copy,
    "index": _index,
    "count": _index,
    "union": _other_set,
    "intersection": _other_set,
    "difference": _other_set,
    "symmetric_difference": _other_set,
    "issubset": _tested,
    "issuperset": _tested,
    "isdisjoint": _tested,
}


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
            default = join(stored, default, m.shape(one(atom)))
        if rest is None or not rest.atoms:
            return default
        return join(rest, default, m.shape(one(atom)))
    return join(dictionaries._dict_item(m, atom, key, node), default)


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
        dictionaries.drop_some(m, atom)
    return found


_DICT: dict[str, Handler] = {
    "get": _get,
    "keys": _keys,
    "values": _values,
    "items": _pairs,
    "update": _update,
    "setdefault": _setdefault,
    "pop": _pop_key,
    "clear": _clear,
    "copy": _copy,
}


def _send(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.loops import items_of

    return items_of(m, one(atom), node)


_GENERATOR: dict[str, Handler] = {
    "send": _send,
    "__next__": _send,
    "close": lambda m, atom, arguments, node: const(None),
}
