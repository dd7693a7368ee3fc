"""With which arguments a library calls the methods that people override (``schemas/library_calls.json``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from dslint.core.schemafiles import load_file
from dslint.model.versions.plain import triple

FILE = "library_calls.json"
CHANGES = "library_changes.json"


class Made(NamedTuple):
    """One form of a call: how many arguments by position, which by name, and the methods in which it stands."""

    given: int
    names: tuple[str, ...]
    callers: tuple[str, ...]


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return load_file(FILE)


def has_class(library: str, title: str) -> bool:
    """Whether the calls of a class are known."""
    return title in _data().get(library, {}).get("classes", {})


def methods_of(library: str, title: str) -> frozenset[str]:
    """The methods that the class calls in some release."""
    return frozenset(_data().get(library, {}).get("classes", {}).get(title, ()))


def made(library: str, title: str, method: str, release: str) -> tuple[Made, ...] | None:
    """The calls of a method in a release; ``None`` where they cannot be told, empty where nothing calls it any more."""
    data = _data().get(library, {})
    rows = data.get("classes", {}).get(title, {}).get(method)
    if not rows or triple(release) < triple(rows[0][0]):
        return None
    calls = [row[1] for row in rows if triple(row[0]) <= triple(release)][-1]
    return None if calls is None else tuple(Made(n, tuple(names), tuple(callers)) for n, names, callers in calls)


def refusal(library: str, title: str, method: str, release: str) -> str:
    """Why a release refuses a class that has a method of that name; empty where it does not."""
    for row in load_file(CHANGES)["refused_methods"]:
        if (row["library"], row["class"], row["method"]) == (library, title, method):
            is_refused = triple(row["since"]) <= triple(release) < triple(row.get("until", "999"))
            return str(row["error"]) if is_refused else ""
    return ""


def instead_of(library: str, title: str, method: str) -> str:
    """What people write in the place of a method that a release refuses, or calls no more."""
    rows = (*load_file(CHANGES)["refused_methods"], *load_file(CHANGES)["uncalled_methods"])
    for row in rows:
        if (row["library"], row["class"], row["method"]) == (library, title, method):
            return str(row["instead"])
    return ""
