"""Commands of parsers (`add_subparsers`): each has a parser of its own, kept under its names."""

from __future__ import annotations

import ast

from dslint.core.source import Location
from dslint.python import containers, optiontable
from dslint.python.binding import BoundArguments
from dslint.python.escapes import is_escaped
from dslint.python.machine import Machine
from dslint.python.optiontable import Declared
from dslint.python.values import NOTHING, Instance, Tuple, Value, const, one

# Of what `add_subparsers` gives: whether a command must be given, where it is kept, the place of the call, a cell for
# each name of a command, how many there are, and why there may be others.
REQUIRED, DEST, _PLACE, _NAMED, _NAMES, _MORE = "#required", "#dest", "#place", "named", "#names", "#more"
# Arguments of a parser that decide how it reads words.
_READING = ("prefix_chars", "fromfile_prefix_chars", "argument_default", "conflict_handler", "add_help", "allow_abbrev")


def add_subparsers(m: Machine, parser: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`parser.add_subparsers(dest="command", required=True)`."""
    from dslint.python.parsers import COMMANDS, PARENT, const_place, text

    made = m.made(node, "argparse._SubParsersAction")
    atom, words = made.single, bound.extra_keywords
    assert isinstance(atom, Instance)
    for name in tuple(m.store.names.get(atom, ())):
        m.store.set((atom, name), NOTHING)
    m.store.set((atom, PARENT), one(parser))
    m.store.set((atom, REQUIRED), words.get("required", const(False)))
    dest = text(words.get("dest"))
    if dest:
        option = Declared(one(Tuple(())), const(dest), const_place(m, node))
        optiontable.add(m, parser, option, "command")
    m.store.set((atom, DEST), words.get("dest", const("")))
    m.store.set((atom, _PLACE), const_place(m, node))
    is_plain = not (words.keys() & {"parser_class", "action"}) and bound.open_keywords is None and bound.rest is None
    known = m.store.get((parser, COMMANDS))
    if not is_plain or (known is not None and known.atoms - made.atoms):
        m.store.set((atom, _MORE), const("its subparsers are no plain ones"))
    m.store.set((parser, COMMANDS), made)
    return made


def add_parser(m: Machine, action: Instance, bound: BoundArguments, node: ast.AST) -> Value | None:
    """`commands.add_parser("train", aliases=["t"], parents=[base])`."""
    from dslint.python.parsers import COMMAND, COMMANDS, PARENT, chain, parser_made, text

    made = m.made(node, "argparse.ArgumentParser")
    atom, words = made.single, bound.extra_keywords
    assert isinstance(atom, Instance)
    before = m.store.get((atom, COMMAND))
    m.store.set((atom, COMMANDS), NOTHING)
    for name in _READING:
        m.store.set((atom, ("argument", name)), words.get(name, const(None)))
    parser_made(m, atom, BoundArguments(extra_keywords=words, open_keywords=bound.open_keywords))
    stored = m.store.get((action, PARENT))
    if stored is not None:
        name = text(bound.given.get("name"))
        m.store.set((atom, PARENT), stored)
        m.store.set((atom, COMMAND), const(name or "command"))
        is_another = before is not None and before.atoms and before != const(name)
        aliases = containers.exact_items(m, words["aliases"]) if "aliases" in words else []
        _name(m, action, made, None if is_another or aliases is None else [name, *map(text, aliases)])
        for target, command in chain(m, atom)[1:]:
            for _, options in optiontable.listed(m, atom):
                for option in options:
                    optiontable.add(m, target, option, command)
    return made


def _name(m: Machine, action: Instance, parser: Value, names: list[str] | None) -> None:
    """Keep the parser of a command under its names; without them the command has a computed name."""
    if names is None or not all(names):
        m.store.set((action, _MORE), const("a command has a computed name"))
        return
    for name in names:
        m.store.set((action, (_NAMED, name)), parser)
    m.store.set((action, _NAMES), const(len(commands_of(m, action))))


def commands_of(m: Machine, action: Instance) -> dict[str, Value]:
    """Return the parsers of commands by their names, in their order."""
    m.store.get((action, _NAMES))  # whoever lists them has read this: a summary holds for as many only
    names = [n[1] for n in m.store.names.get(action, ()) if isinstance(n, tuple) and n[0] == _NAMED]
    found = {name: m.store.get((action, (_NAMED, name))) for name in names}
    return {name: value for name, value in found.items() if value is not None and value.atoms}


def place_of(m: Machine, action: Instance) -> Location | None:
    """Return where `add_subparsers` was called."""
    stored = m.store.get((action, _PLACE))
    where = Declared(NOTHING, NOTHING, stored).where if stored is not None else None
    return where[0].location(where[1]) if where is not None else None


def why_open(m: Machine, action: Instance) -> str:
    """Return why a parser may have commands that nobody has read; empty when it has none."""
    stored = m.store.get((action, _MORE))
    reasons = [str(optiontable.constant(one(atom))) for atom in stored.atoms] if stored is not None else []
    return min(reasons, default="a function gets its subparsers" if is_escaped(m, action) else "")
