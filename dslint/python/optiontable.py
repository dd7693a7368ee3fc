"""The options of a parser, as they stand in the store: what each one declares, and why there may be others.

Each option has a cell of its own, so that where ways meet it is there on all of them, or on some.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields

from dslint.python import containers
from dslint.python.escapes import is_escaped
from dslint.python.heap import ITEMS
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.values import NOTHING, TRUE, Const, Instance, Tuple, Unknown, Value, const, one

# Of a parser: a cell for each option, for the default that `set_defaults` gives, and why it may have others.
_OPTION, _DEFAULT, _MORE, _COUNT = "option", "default", "#more", "#options"
# The list of its actions that a program has asked for, and its items then.
_ACTIONS, _AS_MADE = "#actions", "#actions as made"
# The object that then stands for each of them.
EACH = "#each action"
# What an option is called: its spellings, or the destination of an operand; and the command that it belongs to.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """What `add_argument` was given for one option, as values; nothing where it was not given.

    `flags` are the spellings (none of an operand); `place` is a constant: the module and the node of the call; `open`
    is true where unpacked keywords may say more; `action` may be the name of one that a library adds.
    """

    flags: Value
    dest: Value
    place: Value
    type: Value = NOTHING
    default: Value = NOTHING
    action: Value = NOTHING
    nargs: Value = NOTHING
    required: Value = NOTHING
    choices: Value = NOTHING
    const: Value = NOTHING
    made: Value = NOTHING  # the object that `add_argument` gives
    open: Value = NOTHING

    @property
    def spellings(self) -> list[str]:
        """Return the flags."""
        atom = self.flags.single
        return [str(f.constants[0]) for f in atom.items if f.constants] if isinstance(atom, Tuple) else []

    @property
    def where(self) -> tuple[Module, ast.AST] | None:
        """Return the module and the node of the call."""
        atom = self.place.single
        found = atom.value if isinstance(atom, Const) else None
        return found if isinstance(found, tuple) else None

    def stored(self) -> Value:
        """Return the value of its cell."""
        return one(Tuple(tuple(getattr(self, field.name) for field in fields(self))))


def made(m: Machine, parser: Instance) -> None:
    """Begin with no options: the parser is new, or is made again."""
    for name in tuple(m.store.names.get(parser, ())):
        if name in (_MORE, EACH, _ACTIONS) or (isinstance(name, tuple) and name[0] in (_OPTION, _DEFAULT, "maybe")):
            m.store.set((parser, name), NOTHING)
    m.store.set((parser, _COUNT), const(0))


def add(m: Machine, parser: Instance, option: Declared, command: str = "") -> None:
    """Add an option, perhaps as one of a command (`add_subparsers`) of the parser."""
    dest = option.dest.constants
    key: Key = (*(option.spellings or (str(dest[0]) if dest else "",)), *((f" {command}",) if command else ()))
    m.store.set((parser, (_OPTION, key)), option.stored())
    if m.store.get((parser, ("maybe", (_OPTION, key)))) is not None:
        m.store.set((parser, ("maybe", (_OPTION, key))), NOTHING)
    # Whoever lists the options has read this: a summary of the listing holds for as many only.
    m.store.set((parser, _COUNT), const(len(list(_keys(m, parser)))))


def _keys(m: Machine, parser: Instance) -> Iterator[Key]:
    for name in tuple(m.store.names.get(parser, ())):
        if isinstance(name, tuple) and name[0] == _OPTION:
            stored = m.store.get((parser, name))
            if stored is not None and stored.atoms:
                yield name[1]


def listed(m: Machine, parser: Instance, *, with_commands: bool = False) -> Iterator[tuple[Key, list[Declared]]]:
    """Yield the options in their order; of one that several ways declare otherwise, each declaration."""
    m.store.get((parser, _COUNT))
    for key in _keys(m, parser):
        if with_commands or not key[-1].startswith(" "):
            stored = m.store.get((parser, (_OPTION, key)))
            atoms = stored.atoms if stored is not None else ()
            found = [Declared(*atom.items) for atom in atoms if isinstance(atom, Tuple)]
            if found:
                yield key, sorted(found, key=_order)


def _order(option: Declared) -> tuple[str, int, int]:
    where = option.where
    return ("", 0, 0) if where is None else (where[0].path, *_position(where[1]))


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def may_lack(m: Machine, parser: Instance, key: Key) -> bool:
    """Return whether only some ways to this place have added an option."""
    found = m.store.get((parser, ("maybe", (_OPTION, key))))
    return found is not None and bool(found.atoms)


# -- defaults ---------------------------------------------------------------------------------------------------


def set_default(m: Machine, parser: Instance, dest: str, value: Value) -> None:
    """Keep what `set_defaults` gives a destination; nothing where an option says its own default after that."""
    m.store.set((parser, (_DEFAULT, dest)), value)
    if m.store.get((parser, ("maybe", (_DEFAULT, dest)))) is not None:
        m.store.set((parser, ("maybe", (_DEFAULT, dest))), NOTHING)


def default_of(m: Machine, parser: Instance, dest: str) -> Value | None:
    """Return what `set_defaults` has given a destination; `None` without one."""
    found = m.store.get((parser, (_DEFAULT, dest)))
    return found if found is not None and found.atoms else None


def may_keep_default(m: Machine, parser: Instance, dest: str) -> bool:
    """Return whether only some ways to this place have set the default of a destination."""
    found = m.store.get((parser, ("maybe", (_DEFAULT, dest))))
    return found is not None and bool(found.atoms)


def set_apart(m: Machine, parser: Instance) -> list[str]:
    """Return the destinations for which `set_defaults` was called, in order."""
    names = [n[1] for n in m.store.names.get(parser, ()) if isinstance(n, tuple) and n[0] == _DEFAULT]
    return [name for name in names if default_of(m, parser, name) is not None]


# -- others -----------------------------------------------------------------------------------------------------


def opened(m: Machine, parser: Instance, reason: str) -> None:
    """Note that a parser may have options that nobody has read."""
    stored = m.store.get((parser, _MORE))
    if stored is None or not stored.atoms:
        m.store.set((parser, _MORE), const(reason))


def opened_by(m: Machine, values: list[Value], reason: str) -> None:
    """Note that code without a model has got hold of parsers, of methods of them, or of what holds them."""
    for value in values:
        for atom in value.atoms:
            owner = atom if isinstance(atom, Instance) else getattr(atom, "receiver", None)
            if isinstance(owner, Instance) and is_parser(m, owner):
                opened(m, owner, reason)


def is_parser(m: Machine, atom: Instance) -> bool:
    """Return whether an object is a parser whose options are kept."""
    return m.store.peek((atom, _COUNT)) is not None


def why_open(m: Machine, parser: Instance) -> str:
    """Return why a parser may have options that nobody has read; empty when it has none."""
    stored = m.store.get((parser, _MORE))
    reasons = [a.value if isinstance(a, Const) else "it is not known" for a in stored.atoms] if stored else []
    if not reasons and is_escaped(m, parser):
        return "the parser is handed on"
    if not reasons and _has_other_actions(m, parser):
        return "`_actions` of the parser is changed"
    return min(map(str, reasons), default="")


def actions(m: Machine, parser: Instance, node: ast.AST) -> Value:
    """Return `parser._actions`: a list that the program may only look at. One object stands for all actions."""
    each = m.made(node, "argparse.Action")
    stand_in(m, parser, each)
    if why_open(m, parser):
        return containers.new_list(m, node, [], each)
    made = containers.new_list(m, node, [each] * (len(list(listed(m, parser))) + 1))
    m.store.set((parser, _ACTIONS), made)
    m.store.set((parser, _AS_MADE), m.store.get((made.single, ITEMS)) or NOTHING)
    return made


def stand_in(m: Machine, parser: Instance, each: Value) -> None:
    """Let objects stand for each action of a parser: what is set on them is set on all."""
    m.store.set((parser, EACH), join(m.store.get((parser, EACH)) or NOTHING, each))


def _has_other_actions(m: Machine, parser: Instance) -> bool:
    """Return whether a program has changed the list of the actions, or handed it on."""
    stored = m.store.get((parser, _ACTIONS))
    atoms = [atom for atom in stored.atoms if isinstance(atom, Instance)] if stored is not None else []
    before = m.store.get((parser, _AS_MADE))
    return any(m.store.get((atom, ITEMS)) != before or is_escaped(m, atom) for atom in atoms)


def is_truth(value: Value) -> bool:
    """Return whether a value is certainly true."""
    return value == TRUE


def constant(value: Value) -> object:
    """Return the only constant that a value may hold; `None` for any other."""
    return value.single.value if isinstance(value.single, Const) else None


def is_unknown(value: Value) -> bool:
    """Return whether something unknown is among what a value may be."""
    return any(isinstance(atom, Unknown) for atom in value.atoms)
