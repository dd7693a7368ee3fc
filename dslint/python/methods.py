"""Methods of builtin types: texts are computed, lists change what they hold."""

from __future__ import annotations

import ast

from dslint.python import containers, mappings, texts, writing
from dslint.python.binding import Arguments
from dslint.python.heap import ITEMS, LENGTH
from dslint.python.machine import Machine
from dslint.python.mappings import Handler
from dslint.python.operators import apply
from dslint.python.values import (
    OPAQUE,
    Atom,
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
            handler = mappings.METHODS.get(name)
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
        part = scalar(m, operands, "builtins.str")  # `partition` gives three texts
        return one(Tuple((part, part, part)))
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
    at = arguments.positional[0] if len(arguments.positional) > 1 else const(0)
    for value in arguments.positional[-1:]:
        writing.insert(m, atom, at, value, node)
    return const(None)


def _extend_left(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    writing.loosen(m, atom)
    _extend(m, atom, arguments, node)
    return _reorder(m, atom, arguments, node)


def _reverse(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    items = containers.exact_items(m, one(atom))
    if items is None or not containers.is_owned(m, atom):
        return _reorder(m, atom, arguments, node)
    m.store.set((atom, ITEMS), one(Tuple(tuple(items[::-1]))))
    return const(None)


def _reorder(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    bits = 0
    for value in arguments.positional:
        bits |= m.varies(value)
    writing.moved(m, atom, bits)
    return const(None)


def _remove(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    _reorder(m, atom, arguments, node)
    bits = 0  # a set may lack what is discarded
    for value in arguments.positional if atom.cls == "builtins.set" else ():
        bits |= m.varies(value)
    m.store.set((atom, LENGTH), writing._length(m, atom, bits))
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
    bits = m.varies(arguments.positional[0]) if arguments.positional else 0
    found = containers.at_end(m, atom, at).with_(bits)
    writing.moved(m, atom, bits)
    m.store.set((atom, LENGTH), writing._length(m, atom, 0))
    return found if found.atoms else unknown(OPAQUE, "popped from an empty list")


def _clear(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    if containers.is_owned(m, atom):
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
_LIST: dict[str, Handler] = {
    "append": _append,
    "appendleft": _insert,
    "add": _append,
    "extend": _extend,
    "extendleft": _extend_left,
    "update": _extend,
    "insert": _insert,
    "sort": _sort,
    "reverse": _reverse,
    "remove": _remove,
    "discard": _remove,
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


def _send(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.loops import items_of

    return items_of(m, one(atom), node)


_GENERATOR: dict[str, Handler] = {
    "send": _send,
    "__next__": _send,
    "close": lambda m, atom, arguments, node: const(None),
}
