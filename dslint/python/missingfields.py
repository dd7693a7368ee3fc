"""Fields that are read and that the object certainly lacks: options of a parser that nothing defines."""

from __future__ import annotations

import argparse
import ast

from dslint.python import parsers
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import Instance, Value

MISSING = "missing-field"
_NAMESPACE = "argparse.Namespace"


def note_missing(m: Machine, base: Value, name: str, node: ast.AST) -> None:
    """Note a read of a field that the namespace of a command line, whose fields are all known, does not have."""
    atom = base.single
    if not isinstance(atom, Instance) or atom.cls != _NAMESPACE or not m.alive or hasattr(argparse.Namespace, name):
        return
    held = m.store.get((atom, name))
    if (held is None or not held.atoms) and parsers.is_closed(m, atom):
        path, given = f"{_NAMESPACE}.{name}", m.frame.module
        m.events.append(Event(path, frozenset((MISSING,)), node, given, base, {}, None, m.lanes, m.control))
