"""What a call passes, also by ``**options`` and ``*values`` that the file writes out."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from dslint.model.script.data.labels import items_of
from dslint.model.script.names import Names


@dataclass(slots=True)
class Given:
    """The arguments of one call. ``is_open``: something is unpacked of which nobody knows what it holds."""

    positional: list[cst.BaseExpression] = field(default_factory=list)
    named: dict[str, cst.BaseExpression] = field(default_factory=dict)
    is_open: bool = False

    def argument(self, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """What is passed as ``name=``, or at a position that is known."""
        if name in self.named:
            return self.named[name]
        return self.positional[position] if position is not None and position < len(self.positional) else None


def given(names: Names, call: cst.Call) -> Given:
    """The arguments of a call; of those behind ``*values`` that nobody knows no position is known."""
    found = Given()
    is_known = True
    for arg in call.args:
        if arg.star == "**":
            items = items_of(arg.value, names)
            found.is_open = found.is_open or items is None
            found.named.update(items or {})
        elif arg.star:
            values = _elements(names, arg.value)
            found.is_open = found.is_open or values is None
            is_known = is_known and values is not None
            found.positional += values or []
        elif arg.keyword is not None:
            found.named[arg.keyword.value] = arg.value
        elif is_known:
            found.positional.append(arg.value)
    return found


def _elements(names: Names, node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    value = names.single_value(node) or node
    if not isinstance(value, cst.Tuple) and not (isinstance(value, cst.List) and value is node):
        return None  # a list in a variable may grow
    if any(isinstance(e, cst.StarredElement) for e in value.elements):
        return None
    return [e.value for e in value.elements]
