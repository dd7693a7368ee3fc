"""Texts that a template makes: `"%s/%d" % parts` and `"{}/{}".format(...)` say as much as an f-string."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Sequence

from dslint.python import arithmetic, paths
from dslint.python.binding import Arguments
from dslint.python.machine import Machine
from dslint.python.operators import apply
from dslint.python.special import text_of
from dslint.python.values import Const, Tuple, Value, const

_HOLE = re.compile(r"%(?:%|([-#0 +]*\d*(?:\.\d+)?)([sdifgreEGxXo]))")


def by_percent(m: Machine, template: Value, given: Value, node: ast.AST) -> Value | None:
    """Return the text of `template % given`; `None` where the template is no known text."""
    text = _text(template)
    if text is None:
        return None
    atom = given.single
    items = list(atom.items) if isinstance(atom, Tuple) and atom.is_tuple else [given]
    found = apply(m.worlds, lambda *values: text % values, items)
    if found is not None:
        return found
    parts: list[Value] = []
    end = 0
    for hole in _HOLE.finditer(text):
        parts.append(const(text[end : hole.start()] + ("%" if hole[0] == "%%" else "")))
        end = hole.end()
        if hole[0] == "%%":
            continue
        if not items:
            return None
        item = items.pop(0)
        made = text_of(m, item, node, "__repr__" if hole[2] == "r" else "__str__")
        parts += [made or item, const(hole[1])]
    if items:  # a dictionary, or a mistake
        return arithmetic.scalar(m, (template, given), "builtins.str")
    return _of_parts(m, [*parts, const(text[end:])], node)


def by_format(m: Machine, template: Value, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return the text of `template.format(...)`; `None` where the template or what fills it is not known."""
    text = _text(template)
    if text is None or arguments.rest is not None or arguments.open_keywords is not None:
        return None
    parts: list[Value] = []
    plain, at = True, 0
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError:
        return None
    for before, name, form, conversion in pieces:
        parts.append(const(before))
        if name is None:
            continue
        found = _filled(arguments, name, at)
        if found is None:
            return None
        at += not name
        plain = plain and not form and conversion is None
        made = text_of(m, found, node, "__repr__" if conversion == "r" else "__str__")
        parts += [made or found, const(form or "")]
    if plain:
        whole = apply(m.worlds, lambda *values: "".join(map(str, values)), parts)
        if whole is not None:
            return whole
    return _of_parts(m, parts, node)


def _filled(arguments: Arguments, name: str, at: int) -> Value | None:
    if not name or name.isdigit():
        number = int(name) if name else at
        return arguments.positional[number] if number < len(arguments.positional) else None
    return arguments.keywords.get(name)


def _text(value: Value) -> str | None:
    atom = value.single
    return atom.value if isinstance(atom, Const) and isinstance(atom.value, str) else None


def _of_parts(m: Machine, parts: Sequence[Value], node: ast.AST) -> Value:
    kept = [part for part in parts if _text(part) != ""]
    text = arithmetic.scalar(m, tuple(kept), "builtins.str")
    return paths.joined([paths.known(m, part) for part in kept], text, node=node, between="")
