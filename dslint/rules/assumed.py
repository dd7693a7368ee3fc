"""On which assumptions a finding about a run rests, in words: from the bits and the places of its values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dslint.core.assumptions import assumed
from dslint.python.varies import ASSUMPTION_OF, NAMED_DATA, NAMED_RANK

if TYPE_CHECKING:
    from dslint.python.entries import Entry
    from dslint.python.source import Module
    from dslint.python.values import Value


def from_bits(varies: int, origin: tuple[Module, ast.AST] | None = None) -> Iterator[str]:
    """Yield a sentence for each assumption among the causes; `origin` is the parameter where it is about one."""
    name = origin[1].arg if origin is not None and isinstance(origin[1], ast.arg) else ""
    # With both, nobody knows which of them the place is about.
    is_one = not varies & NAMED_DATA or not varies & NAMED_RANK
    for bit, key in ASSUMPTION_OF.items():
        if varies & bit:
            yield assumed(key, name if is_one and bit & (NAMED_DATA | NAMED_RANK) else "")


def with_origins(entries: Sequence[Entry], values: Sequence[Value | None]) -> Iterator[str]:
    """Yield a sentence for each value that is a parameter of a function which nothing calls."""
    for value in values:
        number = value.number if value is not None else None
        if not isinstance(number, tuple) or number[:1] != ("parameter",):
            continue
        node = next((e.node for e in entries if id(e.node) == number[1]), None)
        function = getattr(node, "name", "") or "the constructor"
        yield assumed("same-parameter", str(number[2]), function=function)
