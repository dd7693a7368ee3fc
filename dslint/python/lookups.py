"""Fields of objects that nobody knows, asked for by a name: `config.get("name", default)`."""

from __future__ import annotations

import ast

from dslint.python import attributes
from dslint.python.binding import Arguments
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.values import Const, Instance, Value


def looked_up(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return what `config.get("name", default)` gives of an object of unknown class: the field of that name, or else.

    It is no more each rank's own than that field: that some other field holds the rank says nothing of it.
    """
    if not 1 <= len(arguments.positional) <= 2 or arguments.rest or arguments.open_keywords:
        return None
    key = arguments.positional[0].single
    if not isinstance(key, Const) or not isinstance(key.value, str):
        return None
    stored = m.store.get((atom, key.value)) or m.store.get((atom, ("key", key.value)))
    held = stored if stored is not None and stored.atoms else attributes.child(m, atom, key.value, node)
    default = arguments.positional[1] if len(arguments.positional) > 1 else arguments.keywords.get("default")
    return join(held, default) if default is not None else held
