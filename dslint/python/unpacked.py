"""Which expressions a call passes by `*values` and `**options`, where its module writes them out."""

from __future__ import annotations

import ast

from dslint.python import dictionaries
from dslint.python.binding import Arguments
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.names import names_of
from dslint.python.passed import elements_of
from dslint.python.values import NOTHING, Instance, Value, Written, one
from dslint.python.varies import DATA


def starred(m: Machine, node: ast.expr, count: int) -> list[ast.expr]:
    """Return the expressions of the `count` items of `*node`; none where no single place of the module writes them."""
    module = m.frame.module
    if isinstance(node, ast.Name) and not any(
        isinstance(a.value, ast.Tuple) and isinstance(t, ast.Name) and t.id == node.id
        for a in module.nodes_of(ast.Assign)
        for t in a.targets
    ):
        return []  # to read all names of a module takes longer than to interpret most calls
    found = elements_of(names_of(module.tree), node) if isinstance(node, ast.Name | ast.Tuple | ast.List) else None
    return found if found is not None and len(found) == count else []


def keyword(m: Machine, place: Value) -> ast.expr | None:
    """Return the expression of an item of `**options` by the place of the item, where that is in the same module.

    Whoever asks for the expression shows its text and its line in the module of the call.
    """
    written = place.single
    node = written.value if isinstance(written, Written) else None
    is_item = isinstance(written, Written) and written.key is not written.value
    return node if is_item and isinstance(node, ast.expr) and m.frame.module.holds(node) else None


def add_mapping(m: Machine, value: Value, found: Arguments, node: ast.AST) -> None:
    """Add the pairs of `**value`; keys that nobody knows leave every parameter open."""
    is_open = False
    rest = NOTHING
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom.cls == "builtins.dict":
            for key in dictionaries.known_keys(m, atom):
                stored = m.store.get((atom, ("key", key)))
                if isinstance(key, str) and stored is not None and stored.atoms and dictionaries.may_lack(m, atom, key):
                    is_open, rest = True, join(rest, stored)
                elif isinstance(key, str) and stored is not None and stored.atoms:
                    old = found.keywords.get(key)
                    found.keywords[key] = stored if old is None or len(value.atoms) == 1 else join(old, stored)
                    found.places[key] = dictionaries.place_of(m, atom, key, node)
                    written = keyword(m, found.places[key]) if len(value.atoms) == 1 else None
                    if written is not None:
                        found.nodes[key] = written
            other = m.store.get((atom, "#rest"))
            if other is not None and other.atoms:
                is_open, rest = True, join(rest, other)
        else:
            is_open, rest = True, join(rest, m.thing(node, "unpacked keywords", (one(atom),)))
    if is_open:
        found.batch = bool(m.varies(rest) & DATA) and (found.batch or found.open_keywords is None)
        found.open_keywords = rest if found.open_keywords is None else join(found.open_keywords, rest)
