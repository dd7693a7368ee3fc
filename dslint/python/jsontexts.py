"""JSON in a text of the program: `json.loads('{"a": 1}')` gives dictionaries and lists whose items are known."""

from __future__ import annotations

import ast
import json
from typing import Any

from dslint.python import containers, writing
from dslint.python.binding import Arguments
from dslint.python.machine import Machine
from dslint.python.values import Const, Value, const, one

_LONGEST, _MOST_ITEMS = 20_000, 400


def loads(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return what `json.loads` makes of one known text; `None` where the row says more."""
    value = arguments.positional[0] if len(arguments.all()) == len(arguments.positional) == 1 else None
    atom = value.single if value is not None else None
    if not isinstance(atom, Const) or not isinstance(atom.value, str | bytes) or len(atom.value) > _LONGEST:
        return None
    try:
        return _Maker(m, node).value(json.loads(atom.value))
    except (ValueError, RecursionError):
        return None  # Python raises there


class _Maker:
    def __init__(self, m: Machine, node: ast.AST) -> None:
        self.m = m
        self.node = node
        self.count = 0

    def value(self, data: Any) -> Value:
        if not isinstance(data, dict | list):
            return const(data)
        m = self.m
        self.count += 1 if not data else len(data)
        if self.count > _MOST_ITEMS:
            raise ValueError
        context = m.context((m.frame.turn or m.frame.id, "json", self.count))
        loop = m.frame.loops[-1].number if m.frame.loops else 0
        made = m.instance(self.node, context, "builtins.dict" if isinstance(data, dict) else "builtins.list", loop)
        containers.clear(m, made)
        if isinstance(data, list):
            for item in data:
                writing.append(m, made, self.value(item), self.node)
        else:
            for key, item in data.items():
                writing.store_item(m, one(made), const(key), self.value(item), self.node)
        return one(made)
