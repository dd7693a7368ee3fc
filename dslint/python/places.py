"""An order of places in the text: sets of objects have none, and findings must be the same in each process."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslint.python.source import Module
    from dslint.python.values import Atom

# Where a difference between the ranks comes from.
Origin = tuple["Module", ast.AST]


def earlier(first: Origin | None, second: Origin | None) -> Origin | None:
    """Return the place that comes first in the text, whatever the order in which values meet."""
    if first is None or second is None or first is second:
        return first or second
    return min(first, second, key=lambda origin: (origin[0].path, *_place(origin[1])))


def ordered(atoms: frozenset[Atom]) -> Sequence[Atom]:
    """Return atoms by kind and by the place where they were made."""
    return tuple(atoms) if len(atoms) < 2 else sorted(atoms, key=_order)


def _order(atom: Atom) -> tuple[str, int, int, str]:
    holder = getattr(atom, "receiver", atom)
    words = (getattr(atom, name, "") for name in ("path", "cls", "value", "reason", "name"))
    text = next((str(word) for word in words if isinstance(word, str | int) and word), "")
    return (type(atom).__name__, *_place(getattr(holder, "node", None)), text)


def _place(node: ast.AST | None) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
