"""What the JSON Schema of one DeepSpeed release says about a config, as positioned violations.

``schemas/deepspeed`` holds one schema for each release at which something changed; every release in between is
judged by the one before it. ``judged.py`` asks the releases that a project uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dslint.core.schemafiles import load_file
from dslint.model.deepspeed.quickschema import as_number, is_integer, is_valid
from dslint.parse.data import DataDoc, join_pointer, split_pointer

NEWEST = "0.19.8"

# Names of the definitions that accept what pydantic's lax mode accepts.
_WORDS = {
    "boolean": "a boolean",
    "integer": "a whole number",
    "positive_integer": "a whole number greater than 0",
    "nonnegative_integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "greater than", "maximum": "at most", "exclusiveMaximum": "below"}


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a config is not what DeepSpeed's schema allows.

    ``kind``: ``unknown`` key | ``removed`` key | ``both`` names of one setting | ``missing`` keys of a section |
    ``section`` that is no object | ``type`` | ``value``. ``strict``: a pydantic model reads the section, so the
    violation raises; ``raises``: it raises although nobody validates. ``expected`` says in words what is allowed.
    """

    kind: str
    pointer: str
    value: Any = None
    expected: str = ""
    strict: bool = False
    raises: bool = False
    text: str = ""
    names: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def history() -> dict[str, Any]:
    """``history.json``: ``points`` (releases at which something changed), ``since``, ``until``, ``refused``, ..."""
    return load_data("history.json")


@lru_cache(maxsize=256)
def point_of(release: str) -> str:
    """The release whose schema describes ``release``: the last point of change before it, else the first one."""
    points: list[str] = history()["points"]
    wanted = numbers(release)
    return next((p for p in reversed(points) if numbers(p) <= wanted), points[0])


def numbers(release: str) -> tuple[int, ...]:
    """``0.16.9`` as numbers, for comparisons; what follows them (``.post1``, ``+cu118``) is left out."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", release)
    return tuple(map(int, found[1].split("."))) if found else ()


def load_schema(release: str = NEWEST) -> dict[str, Any]:
    """The schema that describes one DeepSpeed release."""
    return _at_point(point_of(release))


@lru_cache(maxsize=64)
def _at_point(point: str) -> dict[str, Any]:
    return load_data(f"{point}.schema.json")


def load_data(name: str) -> dict[str, Any]:
    """A file of ``schemas/deepspeed``."""
    return load_file(f"deepspeed/{name}")


def properties(pointer: str = "", release: str = NEWEST) -> dict[str, Any]:
    """The keys that the section at a pointer knows; empty for what is no section."""
    found: dict[str, Any] = (schema_at(pointer, release) or {}).get("properties", {})
    return found


def schema_at(pointer: str, release: str = NEWEST) -> dict[str, Any] | None:
    """The part of a release's schema that describes a pointer, if any."""
    return _part(pointer, point_of(release))


@lru_cache(maxsize=4096)
def _part(pointer: str, point: str) -> dict[str, Any] | None:
    at: Any = _at_point(point)
    for part in split_pointer(pointer):
        at = at.get("properties", {}).get(part)
        if not isinstance(at, dict):
            return None
    return at if isinstance(at, dict) else None


def is_strict(pointer: str, release: str = NEWEST) -> bool:
    """The pointer lies in a section that a pydantic model reads."""
    return _strict(pointer, point_of(release))


@lru_cache(maxsize=4096)
def _strict(pointer: str, point: str) -> bool:
    at = ""
    for part in split_pointer(pointer):
        at = join_pointer(at, part)
        if "model" in ((_part(at, point) or {}).get("x-dslint") or {}):
            return True
    return False


# Several rules ask about the same document in a row.
_last: list[tuple[DataDoc, dict[str, tuple[Violation, ...]]]] = []


def violations(doc: DataDoc, release: str = NEWEST) -> tuple[Violation, ...]:
    """What one release says against a document that holds one DeepSpeed config, in no particular order."""
    if not (_last and _last[0][0] is doc):
        _last[:] = [(doc, {})]
    found, point = _last[0][1], point_of(release)
    if point not in found:
        found[point] = tuple(_collect(doc, point)) if isinstance(doc.data, dict) else ()
    return found[point]


def _collect(doc: DataDoc, point: str) -> Iterator[Violation]:
    seen: set[str] = set()
    schema = _at_point(point)
    errors = () if is_valid(doc.data, schema, schema) else _validator(point).iter_errors(doc.data)
    for error in sorted(errors, key=_weight):
        pointer = "".join(join_pointer("", part) for part in error.absolute_path)
        if error.validator == "required" and pointer in doc.open_objects:
            continue
        for violation in _read(error, pointer, point):
            # A wrong type breaks limits too: the first word is enough.
            if violation.pointer in seen or violation.pointer not in doc.values or _is_unread(doc, pointer):
                continue
            seen.add(violation.pointer)
            yield violation
    for pointer in doc.opaque:
        yield from _of_the_key(doc, pointer, point)


def _of_the_key(doc: DataDoc, pointer: str, point: str) -> Iterator[Violation]:
    """What the key alone says where only a run knows the value."""
    parent, _, _ = pointer.rpartition("/")
    section = _part(parent, point) or {}
    own = section.get("properties", {}).get(split_pointer(pointer)[-1]) if pointer in doc.keys else None
    if own and own.get("x-dslint", {}).get("removed"):
        yield Violation("removed", pointer, text=own.get("description", ""))
    # The value of an unknown key in a validated section may be "auto".
    closed = section.get("additionalProperties") is False and not _strict(pointer, point)
    if pointer in doc.keys and own is None and closed and not pointer.startswith("/_"):
        yield Violation("unknown", pointer)


def _is_unread(doc: DataDoc, pointer: str) -> bool:
    """DeepSpeed looks at the old name of ``bf16`` only where the new one is missing."""
    return pointer.startswith("/bfloat16") and doc.get("/bf16") is not None


def _weight(error: Any) -> int:
    return 0 if error.validator in ("type", "anyOf", "not", "additionalProperties") else 1


@lru_cache(maxsize=64)
def _validator(point: str) -> Any:
    return _draft()(_at_point(point))


def accepts(value: Any, pointer: str, release: str) -> bool:
    """A release accepts a value at a place that its schema describes."""
    point = point_of(release)
    quick = is_valid(value, _part(pointer, point) or {}, _at_point(point))
    return bool(_validator_at(pointer, point).is_valid(value)) if quick is None else quick


@lru_cache(maxsize=512)
def _validator_at(pointer: str, point: str) -> Any:
    return _draft()({**(_part(pointer, point) or {}), "definitions": _at_point(point)["definitions"]})


@lru_cache(maxsize=1)
def _draft() -> Any:
    from jsonschema import Draft7Validator, validators

    checker = Draft7Validator.TYPE_CHECKER.redefine("integer", lambda _, value: is_integer(value))
    limits = {name: _also_in_quotes(Draft7Validator.VALIDATORS[name]) for name in _LIMITS}
    return validators.extend(Draft7Validator, limits, type_checker=checker)  # type: ignore[no-untyped-call]


def _also_in_quotes(compare: Any) -> Any:
    """A limit that holds for ``"5"`` as well: pydantic converts the text before it compares."""

    def limit(validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        number = as_number(value)
        if number is not None:
            yield from compare(validator, bound, number, schema) or ()

    return limit


def _read(error: Any, pointer: str, point: str) -> Iterator[Violation]:
    schema: dict[str, Any] = error.schema
    notes = schema.get("x-dslint", {})
    if error.validator == "additionalProperties":
        for key, value in error.instance.items():
            if key not in schema.get("properties", {}) and not key.startswith("_" if not pointer else "\0"):
                at = join_pointer(pointer, key)
                yield Violation("unknown", at, value, strict="model" in notes)
        return
    if error.validator == "not":
        if "same_setting" in notes:
            names = tuple(notes["same_setting"])
            yield Violation("both", join_pointer(pointer, names[0]), strict=True, names=names)
        elif "removed" in notes:
            yield Violation("removed", pointer, error.instance, text=schema.get("description", ""))
        return
    if error.validator == "required":
        names = tuple(key for key in error.validator_value if key not in error.instance)
        yield Violation("missing", pointer, error.instance, raises=True, names=names)
        return
    own = _part(pointer, point) or {}
    kind = "type" if error.validator in ("type", "anyOf") else "value"
    if "properties" in own and not isinstance(error.instance, dict):
        kind = "section"
    yield Violation(
        kind,
        pointer,
        error.instance,
        expected=_expected(error, own),
        strict=_strict(pointer, point),
        raises=bool((own or schema).get("x-dslint", {}).get("raises")) or kind == "section",
    )


def _expected(error: Any, own: dict[str, Any]) -> str:
    if error.validator in _LIMITS:
        return f"a number {_LIMITS[error.validator]} {error.validator_value:g}"
    if error.validator == "items" or not own:
        return describe(error.schema)
    return describe(own)


def describe(schema: dict[str, Any]) -> str:
    """What a schema allows, in words: ``a whole number or "auto"``."""
    words = list(dict.fromkeys(_alternatives(schema)))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "another value"


def _alternatives(schema: dict[str, Any]) -> Iterator[str]:
    if "examples" in schema:
        yield from (json.dumps(v) for v in schema["examples"])
        return
    if "enum" in schema:
        yield from (json.dumps(v) for v in schema["enum"])
    elif "const" in schema:
        yield json.dumps(schema["const"])
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in _WORDS:
            yield _WORDS[name]
    elif "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        dropped = "auto" in schema.get("pattern", "")
        yield from (_WORDS[t] for t in types if not (t == "string" and dropped))
    for inner in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        if "pattern" not in inner:
            yield from _alternatives(inner)
