"""Whether a config is plainly valid, without jsonschema, whose import costs more than the rest of a run on one file.

Only a clear yes counts: everything else, a keyword unknown here included, is jsonschema's to judge and to explain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dslint.parse.data import split_pointer

_NOTES = frozenset(
    {"$schema", "$comment", "$id", "title", "description", "default", "examples", "definitions", "x-dslint",
     "deprecationMessage", "errorMessage", "doNotSuggest"}
)  # fmt: skip


def is_integer(value: Any) -> bool:
    """As pydantic: ``5e8`` is an integer, a float beyond 64 bits is not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**63)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": is_integer,
    "number": _is_number,
}


def plainly_valid(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """The value fits the schema beyond doubt; ``root`` is where ``$ref`` looks."""
    if "$ref" in schema:  # in draft 7 the keywords beside it do not count
        return plainly_valid(value, _target(schema["$ref"], root), root)
    return all(
        key in _NOTES or (key in _KEYWORDS and _KEYWORDS[key](value, schema[key], schema, root)) for key in schema
    )


def _target(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    at: Any = root
    for part in split_pointer(reference.removeprefix("#")):
        at = at[part]
    found: dict[str, Any] = at
    return found


def _same(value: Any, wanted: Any) -> bool:
    # ``True`` is no ``1`` here; ``1.0`` may be, which jsonschema decides.
    return type(value) is type(wanted) and bool(value == wanted)


def _type(value: Any, names: str | list[str], *_: Any) -> bool:
    return any(_TYPES[name](value) for name in ([names] if isinstance(names, str) else names))


def _properties(value: Any, known: dict[str, Any], _: dict[str, Any], root: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    return all(plainly_valid(value[key], inner, root) for key, inner in known.items() if key in value)


def _pattern_properties(value: Any, patterns: dict[str, Any], _: dict[str, Any], root: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    return all(
        plainly_valid(member, inner, root)
        for pattern, inner in patterns.items()
        for key, member in value.items()
        if re.search(pattern, key)
    )


def _additional(value: Any, allowed: Any, schema: dict[str, Any], _: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    patterns = schema.get("patternProperties", ())
    named = schema.get("properties", {})
    return allowed is False and all(key in named or any(re.search(p, key) for p in patterns) for key in value)


def _not(value: Any, inner: dict[str, Any], *_: Any) -> bool:
    if inner.keys() == {"const"} and isinstance(inner["const"], str):
        return bool(value != inner["const"])
    # Of the other forms only one is plain: not all of these names together.
    return isinstance(value, dict) and any(name not in value for name in inner.get("required", ()))


_KEYWORDS: Mapping[str, Callable[..., bool]] = {
    "type": _type,
    "const": lambda value, wanted, *_: _same(value, wanted),
    "enum": lambda value, wanted, *_: any(_same(value, w) for w in wanted),
    "pattern": lambda value, pattern, *_: not isinstance(value, str) or re.search(pattern, value) is not None,
    "minimum": lambda value, limit, *_: not _is_number(value) or value >= limit,
    "maximum": lambda value, limit, *_: not _is_number(value) or value <= limit,
    "exclusiveMinimum": lambda value, limit, *_: not _is_number(value) or value > limit,
    "exclusiveMaximum": lambda value, limit, *_: not _is_number(value) or value < limit,
    "required": lambda value, names, *_: not isinstance(value, dict) or all(name in value for name in names),
    "anyOf": lambda value, inner, _, root: any(plainly_valid(value, s, root) for s in inner),
    "allOf": lambda value, inner, _, root: all(plainly_valid(value, s, root) for s in inner),
    "items": lambda value, inner, _, root: (
        not isinstance(value, list) or (isinstance(inner, dict) and all(plainly_valid(v, inner, root) for v in value))
    ),
    "not": _not,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
}
