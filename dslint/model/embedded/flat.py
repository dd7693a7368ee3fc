"""Parameters of a strategy that stand for members of a config: ``init_args: {stage: 3, ...}`` of Lightning.

What the file leaves out has a default of the class, which the release decides: no rule speaks of what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from dslint.parse.data import DataDoc
from dslint.python.libraries import libraries


@cache
def flat_classes() -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of such classes by their names."""
    return libraries().classes_with("config_parts")


def is_flat(class_name: str, data: Mapping[str, object]) -> bool:
    """Whether the parameters of a class say one by one what the config holds."""
    row = flat_classes().get(class_name)
    if row is None or data.get("config") is not None:
        return False
    return any(name in row["config_parts"] or name in row["config_switches"] for name in data)


def configured(class_name: str, doc: DataDoc) -> DataDoc:
    """Return the config that the class makes of the parameters in a document."""
    row = flat_classes()[class_name]
    parts, switches = row["config_parts"], row["config_switches"]
    off = [pointer for name, pointer in switches.items() if doc.get(f"/{name}") is False]
    on = {pointer for name, pointer in switches.items() if doc.get(f"/{name}") is True}
    # Sections that nothing turns on by itself; ZeRO is on unless something turns it off.
    asleep = [pointer for pointer in switches.values() if pointer.count("/") > 1 and pointer not in on]
    made = replace(doc, data={}, keys={}, values={"": doc.values[""]}, members={}, opaque={}, computed=frozenset())
    opaque: dict[str, str] = {}
    for name, pointer in parts.items():
        source = f"/{name}"
        if source not in doc.values or any(f"{pointer}/".startswith(f"{top}/") for top in (*off, *asleep)):
            continue
        if source in doc.opaque:
            opaque[pointer] = doc.opaque[source]
        _put(made, pointer, doc, source, is_known=source not in doc.opaque)
    for name, pointer in switches.items():
        if pointer in on and pointer not in made.values:
            _place(made, pointer, doc, f"/{name}")
            _mapping(made, pointer)
    made.opaque = opaque
    made.computed = frozenset(p for p in made.values if not isinstance(made.get(p), dict))
    made.open_objects = frozenset(p for p in made.values if isinstance(made.get(p), dict))
    return made


def _put(made: DataDoc, pointer: str, doc: DataDoc, source: str, *, is_known: bool) -> None:
    around, _, last = pointer.rpartition("/")
    at = ""
    for part in around.split("/")[1:]:
        at += f"/{part}"
        if at not in made.values:
            _place(made, at, doc, source)
    _place(made, pointer, doc, source)
    section = _mapping(made, around)
    if is_known:
        section[last] = doc.get(source)


def _place(made: DataDoc, pointer: str, doc: DataDoc, source: str) -> None:
    made.values[pointer] = doc.values[source]
    if source in doc.keys:
        made.keys[pointer] = doc.keys[source]


def _mapping(made: DataDoc, pointer: str) -> dict[str, object]:
    at: dict[str, object] = made.data
    for part in pointer.split("/")[1:]:
        inner = at.setdefault(part, {})
        assert isinstance(inner, dict)
        at = inner
    return at
