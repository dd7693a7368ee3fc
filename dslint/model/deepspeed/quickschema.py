"""Whether a schema of ours accepts a value, worked out here: to load jsonschema takes longer than to judge a config.

Only the keywords that our schemas use, as Draft 7 reads them; what else a schema says leaves the answer open. Where a
value is refused jsonschema says how. The tests ask both about every schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

# What says nothing about validity.
_NOTES = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "definitions", "examples", "x-dslint",
     "deprecationMessage", "doNotSuggest", "errorMessage", "properties", "patternProperties", "then", "else"}
)  # fmt: skip


class _Unknown(Exception):  # noqa: N818 - no error: the answer is open
    """A keyword that is not read here."""


def is_valid(value: object, schema: Schema, root: Schema) -> bool | None:
    """``None``: only jsonschema knows. ``root`` holds the definitions.

    >>> is_valid({"stage": 2}, {"properties": {"stage": {"type": "integer", "maximum": 3}}}, {})
    True
    """
    try:
        return _accepts(value, schema, root)
    except _Unknown:
        return None


def _accepts(value: object, schema: Schema, root: Schema) -> bool:
    if not isinstance(schema, dict):
        raise _Unknown
    if "$ref" in schema:
        # Draft 7 ignores what stands beside it.
        _, _, name = schema["$ref"].rpartition("#/definitions/")
        if name not in root.get("definitions", {}):
            raise _Unknown
        return _accepts(value, root["definitions"][name], root)
    for keyword, wanted in schema.items():
        check = _CHECKS.get(keyword)
        if check is None:
            if keyword not in _NOTES:
                raise _Unknown
        elif not check(value, wanted, schema, root):
            return False
    return _in_members(value, schema, root) if isinstance(value, dict) else True


def _in_members(value: dict[str, object], schema: Schema, root: Schema) -> bool:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = schema.get("additionalProperties", True)
    for key, member in value.items():
        matching = [inner for pattern, inner in patterns.items() if re.search(pattern, key)]
        if key in known:
            matching.append(known[key])
        if not matching:
            if others is False:
                return False
            matching = [others] if isinstance(others, dict) else []
        if not all(_accepts(member, inner, root) for inner in matching):
            return False
    return True


def _in_items(value: object, schema: Schema, root: Schema) -> bool:
    return not isinstance(value, list) or all(_accepts(item, schema, root) for item in value)


def is_integer(value: object) -> bool:
    """As pydantic: ``5e8`` is an integer, a float beyond 64 bits is not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**63)


def as_number(value: object) -> float | None:
    """What a limit is compared with: of ``"5"`` the number, since pydantic converts the text first."""
    if isinstance(value, str):
        try:
            return float(value.replace("_", ""))
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


_TYPES: dict[str, Callable[[object], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def _is_type(value: object, wanted: str | list[str]) -> bool:
    try:
        return any(_TYPES[name](value) for name in ([wanted] if isinstance(wanted, str) else wanted))
    except KeyError:
        raise _Unknown from None


def _equal(value: object, other: object) -> bool:
    """JSON has no number that is a truth value."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_equal(value[key], other[key]) for key in value)
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _limit(holds: Callable[[float, float], bool]) -> Callable[..., bool]:
    def check(value: object, bound: float, *_: Schema) -> bool:
        number = as_number(value)
        return number is None or holds(number, bound)

    return check


def _chosen(value: object, test: Schema, schema: Schema, root: Schema) -> bool:
    return _accepts(value, schema.get("then" if _accepts(value, test, root) else "else", {}), root)


# ``not <`` and the like: a limit refuses what lies beyond it, and NaN lies nowhere.
_CHECKS: dict[str, Callable[[Any, Any, Schema, Schema], bool]] = {
    "type": lambda value, wanted, *_: _is_type(value, wanted),
    "const": lambda value, wanted, *_: _equal(value, wanted),
    "enum": lambda value, wanted, *_: any(_equal(value, each) for each in wanted),
    "minimum": _limit(lambda number, bound: not number < bound),
    "maximum": _limit(lambda number, bound: not number > bound),
    "exclusiveMinimum": _limit(lambda number, bound: not number <= bound),
    "exclusiveMaximum": _limit(lambda number, bound: not number >= bound),
    "pattern": lambda value, wanted, *_: not isinstance(value, str) or bool(re.search(wanted, value)),
    "required": lambda value, wanted, *_: not isinstance(value, dict) or all(key in value for key in wanted),
    "maxItems": lambda value, wanted, *_: not isinstance(value, list) or len(value) <= wanted,
    "items": lambda value, wanted, _, root: (
        not isinstance(value, list) or all(_accepts(v, wanted, root) for v in value)
    ),
    "anyOf": lambda value, wanted, _, root: any(_accepts(value, inner, root) for inner in wanted),
    "allOf": lambda value, wanted, _, root: all(_accepts(value, inner, root) for inner in wanted),
    "not": lambda value, wanted, _, root: not _accepts(value, wanted, root),
    "if": _chosen,
    "additionalProperties": lambda *_: True,  # with the members
}
