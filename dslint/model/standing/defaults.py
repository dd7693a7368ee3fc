"""Defaults of library functions that changed, where that changes a training (``schemas/library_changes.json``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dslint.core.finding import Severity
from dslint.core.schemafiles import load_file
from dslint.model.standing.calls import CHANGES


class DefaultChange(NamedTuple):
    """From ``since`` on a function has another default for an argument, which may have one of several ``names``.

    ``where``: a regular expression that the module must hold for the effect to show.
    """

    names: tuple[str, ...]
    since: str
    before: str
    after: str
    effect: str
    severity: Severity
    where: str = ""


@lru_cache(maxsize=1)
def _rows() -> dict[tuple[str, str], list[DefaultChange]]:
    found: dict[tuple[str, str], list[DefaultChange]] = {}
    for row in load_file(CHANGES)["defaults"]:
        names = tuple(row["argument"].split("|"))
        change = DefaultChange(
            names,
            row["since"],
            row["before"],
            row["after"],
            row["effect"],
            Severity(row["severity"]),
            row.get("where", ""),
        )
        for function in row["functions"]:
            found.setdefault((row["library"], function), []).append(change)
    return found


def default_changes(dotted: str) -> Iterator[DefaultChange]:
    """The changes of a function by its dotted name; classes count wherever they are imported from."""
    library, _, rest = dotted.partition(".")
    parts = rest.split(".")
    for function in dict.fromkeys((rest, ".".join(parts[-2:]), parts[-1] if parts[-1][:1].isupper() else rest)):
        yield from _rows().get((library, function), ())
