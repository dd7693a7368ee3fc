"""Command line parsers: what `parse_args()` gives is an object whose fields come from outside, the same on all ranks.

Options are kept with their parser: `add_argument` anywhere in the project adds one. A field that a launcher fills for
each process (`--local_rank`) holds the number of the process.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from dslint.python import containers, dataclass_parsers
from dslint.python.binding import BoundArguments
from dslint.python.environment import by_rank
from dslint.python.escapes import is_escaped
from dslint.python.heap import CONTENT, REST
from dslint.python.joins import join
from dslint.python.launches import given_option, is_left_out
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import INPUT, Api, Atom, Const, Function, Instance, Tuple, Unknown, Value, const, one, unknown
from dslint.python.varies import RANKED

# Options that launchers fill for each process, and the columns of `Worlds.lanes`.
RANK_FIELDS = {"local_rank": 1, "global_rank": 0, "node_rank": 2, "rank": 0, "world_size": 3}
_TYPES = {"int": "builtins.int", "float": "builtins.float", "str": "builtins.str", "bool": "builtins.bool"}
# Of a parser: its options, the parser that it is a command of, and whether a file may set its defaults.
_OPTIONS, _PARENT, _OPEN = "#options", "#parser", "#open"
# Of a parser or namespace: it may have options that nobody has read. Of a namespace: it came from a parser.
_MORE, _PARSED = "#more", "#parsed"
_REPEATED = ("append", "extend", "append_const")
_SWITCHES = ("store_true", "store_false", "BooleanOptionalAction")


def read_call(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST) -> Value | None:
    """Return what a method of a parser gives; `None` for methods that the row alone describes."""
    if "dataclasses" in row.extra:
        return dataclass_parsers._into_dataclasses(m, row, bound, receiver, node)
    if "options" in row.extra:
        return _add_options(m, row.extra["options"], bound.given.get("parser"))
    handler = _METHODS.get(row.path)
    if handler is None or not isinstance(receiver, Instance):
        return None
    return handler(m, receiver, bound, node)


def parser_made(m: Machine, receiver: Instance, bound: BoundArguments) -> None:
    """Take over the options of `parents=[...]`, and the fields of `Namespace(a=1)`."""
    parents = bound.given.get("parents")
    items = containers.exact_items(m, parents) if parents is not None else []
    if items is None or bound.rest is not None or bound.open_keywords is not None:
        m.store.set((receiver, _MORE), const(True))
    for item in items or ():
        for atom in item.atoms:
            if not isinstance(atom, Instance) or not _is_read(m, atom):
                m.store.set((receiver, _MORE), const(True))
            if isinstance(atom, Instance):
                for name in _options(m, atom):
                    stored = m.store.get((atom, ("option", name)))
                    if stored is not None:
                        _keep(m, receiver, name, stored)
    for name, value in bound.extra_keywords.items():
        if receiver.cls in ("argparse.Namespace", "types.SimpleNamespace"):
            m.store.set((receiver, name), value)


# -- options ----------------------------------------------------------------------------------------------------


def _options(m: Machine, parser: Instance) -> list[str]:
    stored = m.store.get((parser, _OPTIONS))
    atom = stored.single if stored is not None else None
    return [str(item.constants[0]) for item in atom.items if item.constants] if isinstance(atom, Tuple) else []


def _keep(m: Machine, parser: Instance, name: str, option: Value) -> None:
    names = _options(m, parser)
    if name not in names:
        m.store.set((parser, _OPTIONS), one(Tuple(tuple(const(n) for n in (*names, name)))))
    m.store.set((parser, ("option", name)), option)


def _is_read(m: Machine, parser: Instance) -> bool:
    """Return whether all options of a parser are known."""
    return m.store.get((parser, _MORE)) is None and not is_escaped(m, parser)


def is_closed(m: Machine, namespace: Instance) -> bool:
    """Return whether a namespace has no fields but those that were read: from a parser, or written out."""
    is_parsed = m.store.get((namespace, _PARSED)) is not None
    is_written = namespace.cls == "argparse.Namespace" and m.store.get((namespace, "#arguments")) is not None
    is_more = m.store.get((namespace, _MORE)) is not None
    return (is_parsed or is_written) and not is_more and not is_escaped(m, namespace)


def _chain(m: Machine, parser: Instance) -> list[Instance]:
    """Return a parser and those that it is a command of."""
    found: list[Instance] = []
    atom: Atom | None = parser
    while isinstance(atom, Instance) and atom not in found:
        found.append(atom)
        stored = m.store.get((atom, _PARENT))
        atom = stored.single if stored is not None else None
    return found


def _add_argument(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`parser.add_argument("--lr", type=float, default=0.1)`: (flags, type, default, action, nargs)."""
    flags = [value.constants[0] for value in bound.extra if value.constants]
    names = [flag for flag in flags if isinstance(flag, str)]
    words = bound.extra_keywords
    dest = _text(words.get("dest")) or _dest(names)
    if not dest:
        for target in _chain(m, parser):
            m.store.set((target, _MORE), const(True))
        return None
    nothing = const(None)
    default = words.get("default", nothing)
    parts = (
        one(Tuple(tuple(const(n) for n in names))),
        words.get("type", nothing),
        default,
        words.get("action", nothing),
        words.get("nargs", nothing),
        words.get("required", nothing),
    )
    for target in _chain(m, parser):
        _keep(m, target, dest, one(Tuple(parts)))
    return None


def _add_options(m: Machine, options: Mapping[str, str], parsers: Value | None) -> Value | None:
    """A library adds options of its own to a parser, and gives it back."""
    nothing = const(None)
    for parser in parsers.atoms if parsers is not None else ():
        for target in _chain(m, parser) if isinstance(parser, Instance) else ():
            for flag, kind in options.items():
                action = const("store_true") if kind == "switch" else nothing
                parts = (one(Tuple((const(flag),))), nothing, nothing, action, nothing, nothing)
                _keep(m, target, _dest([flag]), one(Tuple(parts)))
    return parsers


def _add_arguments(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`parser.add_arguments(Options, dest="options")`: a field that holds an object of the class."""
    dest, classes = _text(bound.given.get("dest")), bound.given.get("dataclass")
    if dest and classes is not None:
        m.store.set((parser, ("default", dest)), dataclass_parsers._inputs_of(m, classes, node))
        _keep(m, parser, dest, const(None))
    return None


def _text(value: Value | None) -> str:
    return (
        str(value.constants[0]) if value is not None and value.constants and isinstance(value.constants[0], str) else ""
    )


def _dest(flags: list[str]) -> str:
    long = [flag for flag in flags if flag.startswith("--")] or flags
    return long[0].lstrip("-").replace("-", "_") if long else ""


def _set_defaults(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    if bound.open_keywords is not None:
        for target in _chain(m, parser):
            m.store.set((target, _OPEN), const(True))
    for name, value in bound.extra_keywords.items():
        for target in _chain(m, parser):
            old = m.store.get((target, ("default", name)))
            m.store.set((target, ("default", name)), value if old is None else join(old, value))
            if name not in _options(m, target):
                _keep(m, target, name, const(None))
    return None


def _add_subparsers(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    made = m.made(node, "argparse._SubParsersAction")
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, _PARENT), one(parser))
    dest = _text(bound.extra_keywords.get("dest"))
    if dest:
        nothing = const(None)
        flags = one(Tuple((const(dest),)))
        _keep(m, parser, dest, one(Tuple((flags, nothing, nothing, nothing, nothing, nothing))))
    return made


def _add_parser(m: Machine, action: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    made = m.made(node, "argparse.ArgumentParser")
    atom = made.single
    assert isinstance(atom, Instance)
    stored = m.store.get((action, _PARENT))
    if stored is not None:
        m.store.set((atom, _PARENT), stored)
    parents = bound.extra_keywords.get("parents")
    if parents is not None:
        parser_made(m, atom, BoundArguments({"parents": parents}))
    return made


# -- what parsing gives -----------------------------------------------------------------------------------------


def _parse_args(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    given = bound.given.get("namespace")
    held = given.single if given is not None else None
    if isinstance(held, Instance):
        made = one(held)
    else:
        content = Value(frozenset((Unknown(INPUT, "command line"),)))
        made = m.made(node, "argparse.Namespace", content)
    atom = made.single
    assert isinstance(atom, Instance)
    words = _words(m, bound.given.get("args"))
    # What a file says instead of the defaults is not known.
    is_filled = isinstance(held, Instance) or m.store.get((parser, _OPEN)) is not None
    if not (isinstance(held, Instance) or is_filled) and _is_read(m, parser):
        m.store.set((atom, _PARSED), const(True))
    for name in _options(m, parser):
        option = m.store.get((parser, ("option", name)))
        default = m.store.get((parser, ("default", name)))
        m.store.set((atom, name), _field(m, atom, name, option, default, words, node, is_filled))
    return made


def _words(m: Machine, arguments: Value | None) -> list[str] | None:
    """Return the words that a program passes to its own parser; `None` where they come from the command line."""
    items = containers.exact_items(m, arguments) if arguments is not None and arguments.constants != (None,) else None
    if items is None or not all(i.constants and len(i.constants) == 1 for i in items):
        return None
    return [str(i.constants[0]) for i in items if i.constants]


def _field(m: Machine, atom: Instance, name: str, option: Value | None, default: Value | None, words: list[str] | None,
           node: ast.AST, is_filled: bool) -> Value:  # fmt: skip
    parts = option.single if option is not None else None
    if not isinstance(parts, Tuple) or len(parts.items) != 6:
        return default if default is not None else const(None)
    flags, type_, own, action, nargs, required = parts.items
    own = default if default is not None else own
    names = [str(f.constants[0]) for f in flags.single.items if f.constants] if isinstance(flags.single, Tuple) else []
    if (
        words is not None
        and not any(w.partition("=")[0] in names for w in words)
        and names
        and names[0].startswith("-")
    ):
        return _not_given(own, _text(action))
    if _is_rank_field(m, name, own):
        return by_rank(m, RANK_FIELDS[name])
    if not is_filled and is_left_out(m, name) and names and names[0].startswith("-"):
        return _not_given(own, _text(action))
    if nargs.constants in ((None,), ("?",)):
        given = given_option(m, name, _converter(type_))
        if given is not None:
            return given
    kind = _type_of(type_, own, _text(action))
    optional = own.constants == (None,) and required.constants != (True,) and (not names or names[0].startswith("-"))
    value = _input(atom, name, "" if optional and kind != "builtins.bool" else kind)
    m.defaults[value.number] = own
    m.converted[value.number] = kind
    if nargs.constants not in ((None,), ("?",)) or _text(action) in _REPEATED:
        return _many(m, atom, name, value, node, optional)
    return value


def _not_given(own: Value, action: str) -> Value:
    return const(action == "store_false") if action in _SWITCHES and own.constants == (None,) else own


def _converter(type_: Value) -> str | None:
    """Return the path of a plain converter, empty without one; `None` where the script converts by itself."""
    atom = type_.single
    if isinstance(atom, Api):
        return _TYPES.get(atom.path.rpartition(".")[2])
    return "" if isinstance(atom, Const) and atom.value is None else None


def _is_rank_field(m: Machine, name: str, default: Value) -> bool:
    """Return whether launchers fill an option. `--rank` with another default is the rank of a matrix, for example."""
    if name not in RANK_FIELDS:
        return False
    if name == "local_rank" or m.varies(default) & RANKED:
        return True
    known = default.constants
    return known is None or all(value in (None, -1, 0, 1) for value in known)


def _type_of(type_: Value, default: Value, action: str) -> str:
    atom = type_.single
    if isinstance(atom, Api):
        return _TYPES.get(atom.path.rpartition(".")[2], "")
    if action in _SWITCHES or (isinstance(atom, Function) and "bool" in atom.name):
        return "builtins.bool"
    if action == "count":
        return "builtins.int"
    return "builtins.str" if isinstance(atom, Const) and atom.value is None and action in ("", "store") else ""


def _input(atom: Instance, name: str, kind: str) -> Value:
    """Return an unknown value from the command line: the same one at each place that reads it."""
    return Value(frozenset((Unknown(INPUT, f"option `{name}`", kind),)), 0, 0, frozenset(), ("option", atom, name))


def _many(m: Machine, atom: Instance, name: str, element: Value, node: ast.AST, optional: bool) -> Value:
    inner = Value(element.atoms)
    made = m.instance(atom.node, m.context((atom, name, "list")), "builtins.list", atom.loop)
    m.store.set((made, REST), inner)
    m.store.set((made, CONTENT), Value(frozenset((Unknown(INPUT, f"option `{name}`"),))))
    m.store.set((made, "#length"), unknown(INPUT, "length", 0, 0, "builtins.int"))
    nothing: tuple[Atom, ...] = (Const(None),) if optional else ()
    return Value(frozenset((made, *nothing)), 0, 0, frozenset(), ("option", atom, name))


def _parse_known(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    made = _parse_args(m, parser, bound, node)
    rest = containers.new_list(m, node, [], unknown(INPUT, "command line", 0, 0, "builtins.str"))
    return one(Tuple((made, rest))) if made is not None else None


_METHODS: dict[str, Callable[[Machine, Instance, BoundArguments, ast.AST], Value | None]] = {
    "argparse.ArgumentParser.add_argument": _add_argument,
    "simple_parsing.ArgumentParser.add_arguments": _add_arguments,
    "argparse.ArgumentParser.set_defaults": _set_defaults,
    "argparse.ArgumentParser.add_subparsers": _add_subparsers,
    "argparse._SubParsersAction.add_parser": _add_parser,
    "argparse.ArgumentParser.parse_args": _parse_args,
    "argparse.ArgumentParser.parse_intermixed_args": _parse_args,
    "argparse.ArgumentParser.parse_known_args": _parse_known,
}


# -- dataclasses ------------------------------------------------------------------------------------------------
