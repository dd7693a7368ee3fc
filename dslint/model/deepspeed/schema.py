"""What the JSON Schema of DeepSpeed says about a config, as positioned violations that rules put into words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

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

    ``kind``: ``unknown`` key | ``removed`` key | ``both`` names of one setting | ``section`` that is no object |
    ``type`` | ``value``. ``strict``: a pydantic model reads the section, so the violation raises; ``raises``: it
    raises although nobody validates. ``expected`` says in words what is allowed.
    """

    kind: str
    pointer: str
    value: Any = None
    expected: str = ""
    strict: bool = False
    raises: bool = False
    removed_in: str = ""
    text: str = ""
    names: tuple[str, ...] = ()


@lru_cache(maxsize=4)
def load_schema(version: str = NEWEST) -> dict[str, Any]:
    """The schema of one DeepSpeed release."""
    return load_data(f"{version}.schema.json")


def load_data(name: str) -> dict[str, Any]:
    """A file of ``schemas/deepspeed``: from the installed package, else from the checkout."""
    packed = resources.files("dslint") / "_schemas" / "deepspeed" / name
    if packed.is_file():
        text = packed.read_text("utf-8")
    else:
        checkout = Path(__file__).resolve().parents[3]
        text = (checkout / "schemas" / "deepspeed" / name).read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def properties(pointer: str = "") -> dict[str, Any]:
    """The keys that the section at a pointer knows; empty for what is no section."""
    found: dict[str, Any] = (schema_at(pointer) or {}).get("properties", {})
    return found


def schema_at(pointer: str) -> dict[str, Any] | None:
    """The part of the schema that describes a pointer, if any."""
    at: Any = load_schema()
    for part in split_pointer(pointer):
        at = at.get("properties", {}).get(part)
        if not isinstance(at, dict):
            return None
    return at if isinstance(at, dict) else None


def is_strict(pointer: str) -> bool:
    """The pointer lies in a section that a pydantic model reads."""
    parts, at = split_pointer(pointer), ""
    for part in parts:
        at = join_pointer(at, part)
        if "model" in ((schema_at(at) or {}).get("x-dslint") or {}):
            return True
    return False


# Five rules ask about the same document in a row.
_last: list[tuple[DataDoc, tuple[Violation, ...]]] = []


def violations(doc: DataDoc) -> tuple[Violation, ...]:
    """All violations of a document that holds one DeepSpeed config, in no particular order."""
    if _last and _last[0][0] is doc:
        return _last[0][1]
    found = tuple(_collect(doc)) if isinstance(doc.data, dict) else ()
    _last[:] = [(doc, found)]
    return found


def _collect(doc: DataDoc) -> Iterator[Violation]:
    seen: set[str] = set()
    for error in sorted(_validator().iter_errors(doc.data), key=_weight):
        pointer = "".join(join_pointer("", part) for part in error.absolute_path)
        for violation in _read(error, pointer):
            # A wrong type breaks limits too: the first word is enough.
            if violation.pointer in seen or violation.pointer not in doc.values or _is_unread(doc, pointer):
                continue
            seen.add(violation.pointer)
            yield violation


def is_dropped(doc: DataDoc, pointer: str) -> bool:
    """DeepSpeed does not look at the member of a validated section: ``"auto"``, or an unread old name."""
    return doc.get(pointer) == "auto" or _is_unread(doc, pointer)


def _is_unread(doc: DataDoc, pointer: str) -> bool:
    """DeepSpeed looks at the old name of ``bf16`` only where the new one is missing."""
    return pointer.startswith("/bfloat16") and doc.get("/bf16") is not None


def _weight(error: Any) -> int:
    return 0 if error.validator in ("type", "anyOf", "not", "additionalProperties") else 1


@lru_cache(maxsize=1)
def _validator() -> Any:
    from jsonschema import Draft7Validator, validators

    checker = Draft7Validator.TYPE_CHECKER.redefine("integer", lambda _, value: _is_integer(value))
    return validators.extend(Draft7Validator, type_checker=checker)(load_schema())  # type: ignore[no-untyped-call]


def _is_integer(value: Any) -> bool:
    """As pydantic: ``5e8`` is an integer, a float beyond 64 bits is not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**63)


def _read(error: Any, pointer: str) -> Iterator[Violation]:
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
        elif "removed_in" in notes:
            text = schema.get("description", "")
            yield Violation("removed", pointer, error.instance, removed_in=notes["removed_in"], text=text)
        return
    own = schema_at(pointer) or {}
    kind = "type" if error.validator in ("type", "anyOf") else "value"
    if "properties" in own and not isinstance(error.instance, dict):
        kind = "section"
    yield Violation(
        kind,
        pointer,
        error.instance,
        expected=_expected(error, own),
        strict=is_strict(pointer),
        raises=bool(own.get("x-dslint", {}).get("raises")) or kind == "section",
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
