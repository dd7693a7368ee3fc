"""Functions whose meaning no row can say: builtins that look at values, `functools`, `os.environ`, reflection."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from typing import Any

from dslint.python import (
    collected,
    containers,
    dictionaries,
    effects,
    higher,
    jsontexts,
    memory,
    paths,
    ragged,
    reflection,
    shares,
    turns,
)
from dslint.python.binding import Arguments, BoundArguments, bind
from dslint.python.eventtags import is_plain_tensor
from dslint.python.exceptions import builtin_exception, new_exception
from dslint.python.happenings import noted_event
from dslint.python.heap import COUNT
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.several import note_none
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    Const,
    Instance,
    PerRank,
    Property,
    Static,
    Tuple,
    Unknown,
    Value,
    Written,
    const,
    one,
    unknown,
)

Special = Callable[[Machine, Arguments, ast.AST], "Value | None"]


def _first(arguments: Arguments) -> Value | None:
    return arguments.positional[0] if arguments.positional else None


def _special(name: str, otherwise: Special) -> Special:
    """Return the handler of a function that asks an object for a special method: `abs`, `hash`, `int`."""

    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        from dslint.python.special import call_special, has_own_objects

        value = _first(arguments)
        if value is not None and has_own_objects(value):
            found = call_special(m, value, name, [], node)
            if found is not None:
                return found
        return otherwise(m, arguments, node)

    return handler


def _text(name: str, function: Callable[..., Any]) -> Special:
    """Return the handler of `str` or `repr`."""

    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        from dslint.python.special import text_of

        value = _first(arguments)
        found = text_of(m, value, node, name) if value is not None else None
        if found is not None:
            return found
        text = _computed(function, "builtins.str")(m, arguments, node)
        return text if text is None or value is None else paths.derived("same", [paths.known(m, value)], text, node)

    return handler


def _joined_path(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    found = _computed(_join, "builtins.str")(m, arguments, node)
    parts = [paths.known(m, value) for value in arguments.positional]
    if found is None or found.constants is not None or any(isinstance(a, PerRank) for a in found.atoms):
        return found
    return paths.derived("join", parts, found, node)


def _join(*parts: object) -> str:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        raise TypeError
    return "/".join(texts)


def _print(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """`print` asks its arguments for their text; its row says the rest."""
    from dslint.python.special import text_of

    for value in arguments.positional:
        text_of(m, value, node)
    return None


def _computed(function: Callable[..., Any], type_: str) -> Special:
    """Return a handler that computes a pure function on constants and says the type of the result otherwise."""

    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        from dslint.python.arithmetic import scalar

        if arguments.rest is not None or arguments.open_keywords is not None:
            return None
        if not arguments.keywords:
            found = apply(m.worlds, function, arguments.positional)
            if found is not None:
                return found
        number = (function, tuple(v.number if v.number is not None else v.single for v in arguments.all()))
        return scalar(m, tuple(arguments.all()), type_, None if None in number[1] else number)

    return handler


def _divmod(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.arithmetic import binary

    if len(arguments.positional) != 2 or arguments.rest is not None:
        return None
    left, right = arguments.positional
    return one(Tuple((binary(m, ast.FloorDiv, left, right, node), binary(m, ast.Mod, left, right, node))))


def _length(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.invoke import call_method

    value = _first(arguments)
    if value is None:
        return None
    note_none(m, value, "__len__", node)
    items = containers.exact_items(m, value)
    if items is not None:
        return const(len(items)).with_(m.shape(value) & 0)
    found = apply(m.worlds, len, (value,))
    if found is not None:
        return found
    counted = _dict_length(m, value)
    if counted is not None:
        return counted
    own = call_method(m, value, "__len__", [], node)
    if own is not None:
        return own
    effects.note_length(m, value, node)
    atom = Unknown(OPAQUE, "length of an unknown object", "builtins.int")
    is_text = any(isinstance(a, Unknown) and a.type in ("builtins.str", "builtins.bytes") for a in value.atoms)
    return Value(
        frozenset((atom,)),
        m.shape(value) | (value.varies if is_text or len(value.atoms) > 1 else 0),
        0,
        frozenset(),
        None,
        m.origin(value),
    )


def _dict_length(m: Machine, value: Value) -> Value | None:
    """Return the number of items of a dictionary whose keys are all known."""
    from dslint.python.methods import call_builtin_method

    atom = value.single
    if not isinstance(atom, Instance) or atom.cls != "builtins.dict":
        return None
    keys = call_builtin_method(m, atom, value, "keys", Arguments(), m.frame.module.tree)
    items = keys.single if keys is not None else None
    return const(len(items.items)) if isinstance(items, Tuple) else None


def _range(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    shares.note_range(m, arguments.positional, node)
    constants = [v.single for v in arguments.positional]
    count = NOTHING
    if constants and all(isinstance(c, Const) and isinstance(c.value, int) for c in constants):
        ends: list[Any] = [c.value for c in constants if isinstance(c, Const)]
        numbers = range(*ends)
        if len(numbers) <= 4:
            return one(Tuple(tuple(const(n) for n in numbers), "builtins.range"))
        count = const(len(numbers))
    bits = 0
    origin = None
    for value in arguments.positional:
        bits |= m.varies(value)
        origin = origin or m.origin(value)
    made = m.made(
        node, "builtins.range", Value(frozenset((Unknown(OPAQUE, "range"),)), bits, bits, frozenset(), None, origin)
    )
    atom = made.single
    assert isinstance(atom, Instance)
    start = m.varies(arguments.positional[0]) if len(arguments.positional) > 1 else 0
    step = m.varies(arguments.positional[2]) if len(arguments.positional) > 2 else 0
    number = Value(
        frozenset((Unknown(OPAQUE, "number of a range", "builtins.int"),)), start | step, 0, frozenset(), None, origin
    )
    given = arguments.positional
    number = turns.counting(m, number, given[0] if len(given) > 1 else const(0), given[2] if len(given) > 2 else None)
    m.store.set((atom, "#yields"), number)
    m.store.set((atom, COUNT), count)
    only = arguments.positional[0].number if len(arguments.positional) == 1 else None
    if isinstance(only, tuple) and only[0] == "parameter" and only in m.defaults:
        m.store.set((atom, "#turns"), m.defaults[only])
    return made


def _trange(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """`trange(n)`: a progress bar over a range."""
    from dslint.python.library import construct_library

    numbers = _range(m, Arguments(arguments.positional), node)
    given = Arguments([numbers] if numbers is not None else [], arguments.keywords)
    return construct_library(m, "tqdm.tqdm", given, node)


def _truth(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.arithmetic import truth_value

    value = _first(arguments)
    return truth_value(m, value) if value is not None else const(False)


def _collated(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """`default_collate(samples)`: a batch of the form of a sample, as long as the samples are many on this rank."""
    given = _first(arguments)
    why = ragged.joined(m, given, node) if m.collates else None
    if given is None or why is None:
        return None
    sample = containers.element(m, given, node).single
    if isinstance(sample, Tuple):
        return one(Tuple(tuple(ragged.copied(m, node, (at, m.frame.id), why) for at in range(len(sample.items)))))
    if not isinstance(sample, Instance) or sample.cls != "builtins.dict":
        return None
    keys, place = dictionaries.known_keys(m, sample), one(Written(node, node))
    parts = [(const(key), ragged.copied(m, node, (str(key), m.frame.id), why), place) for key in keys]
    return dictionaries.made_of(m, node, [*parts])


def _tensor(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """`torch.tensor(x)`: a tensor that holds what `x` holds, a constant for each rank included."""
    from dslint.python.heap import CONTENT

    value = _first(arguments) or arguments.keywords.get("data")
    if value is None:
        return None
    made = m.thing(node, "tensor", (value,), "torch.Tensor")
    row = m.libraries.function("torch.tensor")
    if row is not None and not is_plain_tensor(row, arguments.keywords):
        noted_event(m, row, BoundArguments(dict(arguments.keywords)), None, made, node)
    if row is not None and row.parameters is not None:
        memory.called(m, row, bind(row.parameters, arguments), None, made, node)
    items = containers.exact_items(m, value)
    held = items[0] if items is not None and len(items) == 1 else value
    if all(isinstance(a, Const | PerRank) for a in held.atoms) and held.atoms:
        atom = made.single
        assert isinstance(atom, Instance)
        m.store.set((atom, CONTENT), Value(held.atoms, m.varies(held), 0, frozenset(), held.number, held.origin))
    return ragged.collected(m, value, made, node)


def _int(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = _first(arguments)
    if value is not None and len(arguments.positional) == 1:
        kept = _lanes_only(value)
        if kept is not None:
            found = apply(m.worlds, int, (kept,))
            if found is not None:
                return (
                    join(found, unknown(OPAQUE, "a number", m.varies(value), 0, "builtins.int"))
                    if kept is not value
                    else found
                )
    return ragged.counted(m, value, _computed(int, "builtins.int")(m, arguments, node))


def _lanes_only(value: Value) -> Value | None:
    """Return the value where all its atoms are constants."""
    return value if value.atoms and all(isinstance(a, Const | PerRank) for a in value.atoms) else None


def _import_module(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = _first(arguments)
    atom = value.single if value is not None else None
    if isinstance(atom, Const) and isinstance(atom.value, str) and atom.value and not atom.value.startswith("."):
        return m.program.imported(m, m.frame.module, atom.value, node)
    return None


FUNCTIONS: dict[str, Special] = {
    "importlib.import_module": _import_module,
    "json.loads": jsontexts.loads,
    "builtins.len": _length,
    "builtins.range": _range,
    "tqdm.trange": _trange,
    "builtins.enumerate": collected._enumerate,
    "builtins.zip": collected._zip,
    "builtins.list": collected._listed("builtins.list"),
    "builtins.tuple": collected._listed("builtins.tuple"),
    "builtins.set": collected._listed("builtins.set"),
    "builtins.frozenset": collected._listed("builtins.set"),
    "builtins.sorted": higher.sorted_,
    "builtins.reversed": collected._listed("reversed"),
    "collections.deque": collected._deque,
    "builtins.dict": collected._dict,
    "builtins.dict.fromkeys": collected._from_keys,
    "collections.OrderedDict": collected._dict,
    "collections.defaultdict": collected._default_dict,
    "builtins.isinstance": reflection._isinstance,
    "builtins.getattr": reflection._getattr,
    "builtins.setattr": reflection._setattr,
    "builtins.hasattr": reflection._hasattr,
    "builtins.int": _special("__int__", _int),
    "builtins.float": _special("__float__", _computed(float, "builtins.float")),
    "builtins.str": _text("__str__", str),
    "builtins.print": _print,
    "builtins.repr": _text("__repr__", repr),
    "builtins.bool": _truth,
    "builtins.abs": _special("__abs__", _computed(abs, "builtins.float")),
    "builtins.round": _special("__round__", _computed(round, "builtins.float")),
    "builtins.hash": _special("__hash__", lambda m, arguments, node: None),
    "builtins.divmod": _divmod,
    "builtins.min": higher.least(min),
    "builtins.max": higher.least(max),
    "builtins.sum": higher.least(sum),
    "functools.reduce": higher.reduce_,
    "builtins.any": collected._any_all("any"),
    "builtins.all": collected._any_all("all"),
    "builtins.map": higher.map_,
    "builtins.filter": higher.filter_,
    "builtins.next": collected._next,
    "builtins.iter": collected._iter,
    "builtins.type": reflection._type,
    "builtins.vars": reflection._vars,
    "dataclasses.asdict": reflection._asdict,
    "builtins.property": reflection._wrapping(Property),
    "functools.cached_property": reflection._wrapping(Property),
    "builtins.staticmethod": reflection._wrapping(Static),
    "builtins.classmethod": reflection._classmethod,
    "functools.partial": reflection._partial,
    "functools.wraps": reflection._same_function,
    "functools.lru_cache": reflection._same_function,
    "functools.cache": reflection._identity,
    "dslint.identity": reflection._identity,
    "math.ceil": _computed(math.ceil, "builtins.int"),
    "math.floor": _computed(math.floor, "builtins.int"),
    "math.sqrt": _computed(math.sqrt, "builtins.float"),
    "math.log2": _computed(math.log2, "builtins.float"),
    "os.getenv": reflection._environment,
    "os.environ.get": reflection._environment,
    "os.environ.setdefault": reflection._set_default,
    "os.environ.update": reflection._update_environment,
    "os.environ.__getitem__": reflection._environment,
    "os.path.join": _joined_path,
    "torch.tensor": _tensor,
    "torch.utils.data.default_collate": _collated,
    "torch.as_tensor": _tensor,
    "torch.FloatTensor": _tensor,
    "torch.LongTensor": _tensor,
}


def _exception(path: str) -> Special:
    return lambda m, arguments, node: new_exception(m, path, arguments, node)


for _name in dir(builtins):
    if builtin_exception(f"builtins.{_name}") is not None:
        FUNCTIONS[f"builtins.{_name}"] = _exception(f"builtins.{_name}")
