"""Calls of code that nobody can read: what comes out, what it may do to what goes in, and what its name says."""

from __future__ import annotations

import ast
import re

from dslint.python import configdicts, effects, optiontable, ranknames
from dslint.python.binding import Arguments
from dslint.python.escapes import escape
from dslint.python.events import Lost
from dslint.python.machine import Machine
from dslint.python.values import OPAQUE, Function, Value
from dslint.python.varies import LOST, RANKED, UNMODELLED

# Words of functions that some ranks may call to wait for the others.
_MAY_WAIT = re.compile(r"(?:^|_)(?:wait|sync|synchronize|barrier|rendezvous)_|_(?:wait|sync|synchronize|barrier)$")
# Names of bars that show how far a loop has come, and give it what they get.
_SHOWS = re.compile(r"a?tqdm$|tqdm_|progress(?:_?bar)?$|track$", re.IGNORECASE)
# Words of functions after which all ranks hold the same.
_AGREES = re.compile(
    r"(?:^|_)(?:all_?)?(?:reduced?|gather(?:ed)?|broadcast|bcast|sync(?:ed|hronize)?|average_across)(?:_|$)"
)


def opaque_call(
    m: Machine, arguments: Arguments, node: ast.AST, reason: str, receiver: Value | None = None, kind: str = OPAQUE
) -> Value:
    """Return the result of code without a model: assumed the same where all that goes in is the same."""
    ranked = ranknames.called(m, _name_of_call(node), arguments, node)
    if ranked is not None:
        return ranked
    if _SHOWS.match(_name_of_call(node)) and arguments.positional:
        return arguments.positional[0]
    operands = [*arguments.all(), *((receiver,) if receiver is not None else ())]
    looks_on = m.keeps_configs and configdicts.given_away(m, operands, node)
    for operand in operands:
        if not looks_on:
            escape(m, operand)
        _call_back(m, operand, node)
    optiontable.opened_by(m, operands, f"{reason.removeprefix('no row for ')} may add options")
    effects.note_loaders(m, operands, node)
    if m.lanes != m.worlds.full and _MAY_WAIT.search(_name_of_call(node)):
        m.events.append(Lost("a call that waits by its name", node))
    varies = UNMODELLED
    if not m.keeps_configs:  # what differs by rank is of no interest there
        varies |= _handed_on(m, operands)
    if _AGREES.search(_name_of_call(node)):
        return m.thing(node, reason, varies=UNMODELLED | (varies & LOST), kind=kind)
    return m.thing(node, reason, operands, varies=varies, kind=kind)


def _handed_on(m: Machine, operands: list[Value]) -> int:
    """Return the causes of difference that the result may have from its operands.

    What code does with a value that differs is what it is called for. Of an object that has the number of the rank
    somewhere inside (`args.rank`, the device of a model) it may read anything: nobody knows whether the result differs.
    """
    own = inside = 0
    for operand in operands:
        own |= m.varies(operand)
        inside |= m.deep_varies(operand)
    return own | (inside & ~RANKED) | (LOST if inside & ~own & RANKED else 0)


def _name_of_call(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _call_back(m: Machine, operand: Value, node: ast.AST) -> None:
    """Functions of the project that are handed to unknown code are entries of their own (`entries.py`).

    Whether that code calls them, and how often, nobody knows.
    """
    for atom in operand.atoms:
        if isinstance(atom, Function):
            m.program.noted.callbacks.append((atom, m.frame.module))
            if m.program.relevance(m).waits(atom.node, atom.module):
                m.events.append(Lost(f"what unknown code does with `{atom.name}`", node))
