"""Parsers of command lines: what their methods add to the options that are kept with each (`optiontable.py`)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

from dslint.python import attributes, containers, dataclass_parsers, namespaces, optiontable, subparsers
from dslint.python.binding import BoundArguments
from dslint.python.escapes import is_escaped
from dslint.python.joins import join
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.optiontable import Declared
from dslint.python.values import NOTHING, TRUE, Api, Atom, Const, Instance, Tuple, Value, const, one

# Of a parser: the parser that it is a command of, by which name, its own commands, and whether a file may set its
# defaults.
PARENT, COMMAND, COMMANDS, OPEN = "#parser", "#command", "#commands", "#open"
# Of a namespace: it has all options of the parser that made it.
PARSED = "#parsed"
_WORDS = ("type", "default", "action", "nargs", "required", "choices", "const")
COMPUTED = "an option has a computed name"


def read_call(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST) -> Value | None:
    """Return what a method of a parser gives; `None` for methods that the row alone describes."""
    focus = m.program.focus
    if "dataclasses" in row.extra and focus is None:
        return dataclass_parsers._into_dataclasses(m, row, bound, receiver, node)
    if "dataclasses" in row.extra and focus is not None and focus.question.results:
        with focus.under_way():
            return dataclass_parsers._into_dataclasses(m, row, bound, receiver, node)
    if "options" in row.extra:
        return _add_options(m, row.extra["options"], bound.given.get("parser"), node)
    handler = _METHODS.get(row.path)
    if handler is None or not isinstance(receiver, Instance):
        return None
    return handler(m, receiver, bound, node)


def parser_made(m: Machine, receiver: Instance, bound: BoundArguments) -> None:
    """Take over the options of `parents=[...]`, and the fields of `Namespace(a=1)`."""
    if attributes.is_instance_of(m, receiver.cls, "namespace"):
        for name, value in bound.extra_keywords.items():
            m.store.set((receiver, name), value)
        if bound.rest is not None or bound.open_keywords is not None:
            m.store.set((receiver, "#more"), TRUE)
        return
    optiontable.made(m, receiver)
    if bound.rest is not None or bound.open_keywords is not None:
        optiontable.opened(m, receiver, "the parser is made with `**`")
    parents = bound.given.get("parents", bound.extra_keywords.get("parents"))
    items = containers.exact_items(m, parents) if parents is not None else []
    if items is None:
        optiontable.opened(m, receiver, "a parent of the parser is not in view")
    for item in items or ():
        atom = item.single
        if isinstance(atom, Instance) and optiontable.is_parser(m, atom):
            _take_over(m, receiver, atom)
        else:
            optiontable.opened(m, receiver, "a parent of the parser is not in view")


def _take_over(m: Machine, parser: Instance, parent: Instance) -> None:
    reason = optiontable.why_open(m, parent)
    commands = m.store.get((parent, COMMANDS))
    if not reason and commands is not None and commands.atoms:
        reason = "a parent of the parser has subparsers"
    if reason:
        optiontable.opened(m, parser, reason)
    optiontable.stand_in(m, parser, m.store.get((parent, optiontable.EACH)) or NOTHING)
    for key, options in optiontable.listed(m, parent):
        for option in options:
            optiontable.add(m, parser, option)
        if optiontable.may_lack(m, parent, key) or len(options) > 1:
            m.store.set((parser, ("maybe", ("option", key))), TRUE)
    for dest in optiontable.set_apart(m, parent):
        optiontable.set_default(m, parser, dest, optiontable.default_of(m, parent, dest) or NOTHING)


def is_closed(m: Machine, namespace: Instance) -> bool:
    """Return whether a namespace has no fields but those that were read: from a parser, or written out."""
    is_parsed = m.store.get((namespace, PARSED)) is not None
    is_written = namespace.cls == "argparse.Namespace" and m.store.get((namespace, "#arguments")) is not None
    is_more = m.store.get((namespace, "#more")) is not None
    return (is_parsed or is_written) and not is_more and not is_escaped(m, namespace)


def chain(m: Machine, parser: Instance) -> list[tuple[Instance, str]]:
    """Return a parser and those that it is a command of, each with the name of the command there."""
    found: list[tuple[Instance, str]] = []
    atom: Atom | None = parser
    command = ""
    while isinstance(atom, Instance) and all(atom is not known for known, _ in found):
        found.append((atom, command))
        named = m.store.get((atom, COMMAND))
        command = str(optiontable.constant(named)) if named is not None else command
        stored = m.store.get((atom, PARENT))
        atom = stored.single if stored is not None else None
    return found


def _add_argument(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`parser.add_argument("--lr", type=float, default=0.1)`."""
    words = bound.extra_keywords
    names = [optiontable.constant(value) for value in bound.extra]
    flags = [name for name in names if isinstance(name, str)]
    given = optiontable.constant(words["dest"]) if "dest" in words else None
    is_named = given is not None or "dest" not in words
    dest = given if isinstance(given, str) else _dest(flags)
    if len(flags) < len(names) or bound.rest is not None or not dest or not is_named:
        for target, _ in chain(m, parser):
            optiontable.opened(m, target, COMPUTED)
        return None
    made = m.made(node, "argparse.Action")
    if not flags or not flags[0].startswith("-"):
        flags = []
    option = Declared(
        one(Tuple(tuple(const(flag) for flag in flags))),
        const(dest),
        const_place(m, node),
        **{name: words[name] for name in _WORDS if name in words},
        made=made,
        open=TRUE if bound.open_keywords is not None else NOTHING,
    )
    for target, command in chain(m, parser):
        if "default" in words and optiontable.default_of(m, target, dest) is not None:
            optiontable.set_default(m, target, dest, NOTHING)
        optiontable.add(m, target, option, command)
    return made


def const_place(m: Machine, node: ast.AST) -> Value:
    """Return the place of a call as a constant."""
    return one(Const((m.frame.module, node)))


def _add_options(m: Machine, options: Mapping[str, str], parsers: Value | None, node: ast.AST) -> Value | None:
    """A library adds options of its own to a parser, and gives it back."""
    for parser in parsers.atoms if parsers is not None else ():
        for target, command in chain(m, parser) if isinstance(parser, Instance) else ():
            for flag, kind in options.items():
                optiontable.add(m, target, _of_library(m, flag, kind, node), command)
    return parsers


def _of_library(m: Machine, flag: str, kind: str, node: ast.AST) -> Declared:
    """Return an option that a row describes: `switch`, `text`, `text log`, `int 1000`, `float 0.1`."""
    word, _, default = kind.partition(" ")
    plain = Declared(one(Tuple((const(flag),))), const(_dest([flag])), const_place(m, node))
    if word == "switch":
        return replace(plain, action=const("store_true"))
    convert = {"int": int, "float": float}.get(word, str)
    value = const(convert(default)) if default else const(None)
    return replace(plain, type=one(Api(f"builtins.{convert.__name__}")), default=value)


def _add_arguments(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`parser.add_arguments(Options, dest="options")`: a field that holds an object of the class."""
    dest, classes = text(bound.given.get("dest")), bound.given.get("dataclass")
    if dest and classes is not None:
        optiontable.set_default(m, parser, dest, dataclass_parsers._inputs_of(m, classes, node))
        optiontable.opened(m, parser, "the fields of a class are its options")
    return None


def text(value: Value | None) -> str:
    """Return the text that a value certainly is, else an empty one."""
    found = optiontable.constant(value) if value is not None else None
    return found if isinstance(found, str) else ""


def _dest(flags: list[str]) -> str:
    long = [flag for flag in flags if flag.startswith("--")] or flags
    name = long[0] if long else ""
    return name.lstrip("-").replace("-", "_") if name.startswith("-") else name


def _set_defaults(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    if bound.open_keywords is not None:
        for target, _ in chain(m, parser):
            m.store.set((target, OPEN), const(True))
    for name, value in bound.extra_keywords.items():
        for target, command in chain(m, parser):
            old = optiontable.default_of(m, target, name) if command else None
            optiontable.set_default(m, target, name, value if old is None else join(old, value))
    return None


_METHODS: dict[str, Callable[[Machine, Instance, BoundArguments, ast.AST], Value | None]] = {
    "argparse.ArgumentParser.add_argument": _add_argument,
    "simple_parsing.ArgumentParser.add_arguments": _add_arguments,
    "argparse.ArgumentParser.set_defaults": _set_defaults,
    "argparse.ArgumentParser.add_subparsers": subparsers.add_subparsers,
    "argparse._SubParsersAction.add_parser": subparsers.add_parser,
    "argparse.ArgumentParser.parse_args": namespaces.parse_args,
    "argparse.ArgumentParser.parse_intermixed_args": namespaces.parse_args,
    "argparse.ArgumentParser.parse_known_args": namespaces.parse_known,
    "argparse.ArgumentParser.parse_known_intermixed_args": namespaces.parse_known,
}
