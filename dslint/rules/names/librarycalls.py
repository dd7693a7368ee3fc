"""Calls of functions of libraries, and which release refuses each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from dslint.core.schemafiles import load_file
from dslint.model.standing.binding import misfit
from dslint.model.standing.calls import CHANGES
from dslint.model.standing.presence import never_changes, signature_in
from dslint.model.versions.plain import triple
from dslint.python.passed import passed

if TYPE_CHECKING:
    from dslint.python.uses.kinds import Guards
    from dslint.rules.libraryuses import LibraryUses


@dataclass(eq=False)
class LibraryCall:
    """One call: what it calls, how many arguments it gives by position, and which by name.

    ``is_open``: it unpacks something that nobody knows. ``texts``: the arguments that are plain texts, by position or
    name. ``problems``: why each release that was asked refuses it.
    """

    node: ast.Call
    dotted: str
    guards: Guards
    caught: frozenset[str]
    given: int
    names: tuple[str, ...]
    is_open: bool
    texts: dict[str | int, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def library(self) -> str:
        """The library by the name of its package."""
        return self.dotted.partition(".")[0]

    @property
    def short(self) -> str:
        """The name of the function, with its class where it is a method."""
        parts = self.dotted.split(".")
        return ".".join(parts[-2:]) if len(parts) > 1 and parts[-2][:1].isupper() else parts[-1]


def calls_of(view: LibraryUses) -> Iterator[LibraryCall]:
    """All calls of a script whose function is one of a library for certain."""
    for use in view.found.uses:
        if use.call is None or len(use.dotted) != 1 or use.name.partition(".")[0] not in view.libraries:
            continue
        told = passed(view.names, use.call)
        has_stars = any(isinstance(arg, ast.Starred) for arg in use.call.args)
        names = tuple(told.named)
        # `Trainer.log(self, logs)` gives the object itself.
        is_explicit = not use.is_bound and bool(told.positional) and getattr(told.positional[0], "id", "") == "self"
        given = len(told.positional) - is_explicit
        given_by: list[tuple[str | int, ast.expr]] = [*enumerate(told.positional), *told.named.items()]
        texts = {key: text for key, node in given_by if (text := _text(node))}
        is_open = told.is_open or has_stars
        yield LibraryCall(use.call, use.name, use.guards, use.caught, given, names, is_open, texts)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def refused_values() -> dict[str, list[dict[str, Any]]]:
    """The values that functions refuse since a release, by the functions."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in load_file(CHANGES)["refused_values"]:
        found.setdefault(f"{row['library']}.{row['function']}", []).append(row)
    return found


def is_steady(view: LibraryUses, call: LibraryCall) -> bool:
    """Whether all releases take the same arguments."""
    surface = view.surface(call.library)
    return surface is None or (never_changes(surface, call.dotted) and call.dotted not in refused_values())


def refused_in(view: LibraryUses, call: LibraryCall, release: str) -> bool | None:
    """Whether a release refuses a call; ``None`` where its signature is not known."""
    for row in refused_values().get(call.dotted, ()):
        text = call.texts.get(row["argument"], call.texts.get(row["position"], ""))
        if text.endswith(row["ends"]):
            is_late = triple(release) >= triple(row["since"])
            call.problems[release] = row["error"] if is_late else ""
            return is_late
    surface = view.surface(call.library)
    signature = signature_in(surface, call.dotted, release) if surface is not None else None
    if signature is None:
        return None
    call.problems[release] = misfit(signature, call.given, call.names, is_open=call.is_open)
    return bool(call.problems[release])
