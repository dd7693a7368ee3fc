"""Raw values -> a :class:`Table`, or one line that says what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

from dslint.settings.errors import Origin, SettingsError, did_you_mean
from dslint.settings.table import (
    NAME,
    ConfidenceName,
    ConsumerName,
    FormatName,
    LanguageName,
    Launch,
    Names,
    SeverityName,
    Table,
    kebab,
)

_FIELDS = {kebab(f.name): f for f in fields(Table)}
# Tables inside of the table.
_TABLES = {"launch": Launch, "names": Names, "launches": Launch}
_CHOICES = {
    "SeverityName": SeverityName,
    "ConfidenceName": ConfidenceName,
    "FormatName": FormatName,
    "LanguageName": LanguageName,
    "ConsumerName": ConsumerName,
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_EXPECTED = {
    "tuple_type": "a list of strings",
    "string_type": "a string",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "mapping_type": "a table",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "path_type": "a path",
    "string_pattern_mismatch": "a name in Python, with dots or without (`mylib.dist.is_chief`)",
}


def model() -> Any:
    """pydantic's view of :class:`Table`, also the source of the JSON Schema."""
    from pydantic import ConfigDict, Field, create_model

    config = ConfigDict(extra="forbid", alias_generator=kebab)
    for table in _TABLES.values():
        setattr(table, "__pydantic_config__", config)  # noqa: B010 - mypy does not know the attribute
    hints = get_type_hints(Table)
    columns: dict[str, Any] = {
        f.name: (hints[f.name], Field(**f.metadata, default=f.default) if f.default is not MISSING else _made(f))
        for f in fields(Table)
    }
    return create_model("Table", __config__=config, **columns)


def _made(column: Any) -> Any:
    from pydantic import Field

    return Field(**column.metadata, default_factory=column.default_factory)


def validate(raw: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The values by field name, of the keys that ``raw`` gives.

    Raises:
        SettingsError: an unknown key or a value of the wrong type.
    """
    if all(key in _FIELDS and _is_plainly_right(key, value) for key, value in raw.items()):
        # The usual case. Importing pydantic would take longer than linting a file.
        return {_FIELDS[k].name: _plain(k, v) for k, v in raw.items()}
    from pydantic import ValidationError

    try:
        table = model().model_validate(dict(raw))
    except ValidationError as error:
        raise _readable(error, origin) from None
    return {_FIELDS[k].name: getattr(table, _FIELDS[k].name) for k in raw}


def _plain(key: str, value: Any) -> Any:
    if key == "names":
        return Names(**{name: tuple(words) for name, words in value.items()})
    if key == "launch":
        return Launch(**{name.replace("-", "_"): number for name, number in value.items()})
    return tuple(value) if isinstance(value, list) else value


def _is_plainly_right(key: str, value: Any) -> bool:
    if key == "names" and isinstance(value, dict):
        known = {f.name for f in fields(Names)}
        return known >= value.keys() and all(isinstance(v, list) and all(map(_is_name, v)) for v in value.values())
    if key == "launch" and isinstance(value, dict):
        known = {kebab(f.name) for f in fields(Launch)}
        return known >= value.keys() and all(type(v) is int and v >= 1 for v in value.values())
    kind = str(_FIELDS[key].type).removesuffix(" | None")
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return type(value) is int and value >= 1
    if kind in ("str", "Path"):
        return isinstance(value, str)
    if kind == "tuple[str, ...]":
        return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    choices = _CHOICES.get(kind)
    return isinstance(value, str) and value in get_args(choices)


def _is_name(word: object) -> bool:
    return isinstance(word, str) and re.match(NAME, word) is not None


def _readable(error: Any, origin: Origin) -> SettingsError:
    """The first error in words; unknown keys first, since they explain most of the others."""
    errors = sorted(error.errors(), key=lambda e: e["type"] not in _UNKNOWN)
    first = errors[0]
    path = tuple(str(part) for part in first["loc"])
    if first["type"] in _UNKNOWN:
        inner = _TABLES.get(path[0]) if len(path) > 1 else None
        level = [kebab(f.name) for f in fields(inner)] if inner is not None else list(_FIELDS)
        return origin.error(f"unknown key `{'.'.join(path)}`{did_you_mean(path[-1], level)}", path)
    context = first.get("ctx", {})
    if first["type"] == "greater_than_equal":
        needed = f"at least {context['ge']}"
    elif first["type"] == "literal_error":
        needed = f"{context['expected']}"
    else:
        needed = _EXPECTED.get(first["type"], first["msg"])
    found = json.dumps(first["input"], default=str, ensure_ascii=False)
    return origin.error(f"`{'.'.join(path)}` must be {needed}, found {found}", path)
