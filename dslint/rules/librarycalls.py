"""Calls of functions of libraries, and which release refuses each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.model.standing.binding import misfit
from dslint.model.standing.presence import never_changes, signature_in
from dslint.python.passed import passed

if TYPE_CHECKING:
    from dslint.python.uses.kinds import Guards
    from dslint.rules.libraryuses import LibraryUses


@dataclass(eq=False)
class LibraryCall:
    """One call: what it calls, how many arguments it gives by position, and which by name.

    ``is_open``: it unpacks something that nobody knows. ``problems``: why each release that was asked refuses it.
    """

    node: ast.Call
    dotted: str
    guards: Guards
    caught: frozenset[str]
    given: int
    names: tuple[str, ...]
    is_open: bool
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
        yield LibraryCall(
            use.call, use.name, use.guards, use.caught, len(told.positional), names, told.is_open or has_stars
        )


def is_steady(view: LibraryUses, call: LibraryCall) -> bool:
    """Whether all releases take the same arguments."""
    surface = view.surface(call.library)
    return surface is None or never_changes(surface, call.dotted)


def refused_in(view: LibraryUses, call: LibraryCall, release: str) -> bool | None:
    """Whether a release refuses a call; ``None`` where its signature is not known."""
    surface = view.surface(call.library)
    signature = signature_in(surface, call.dotted, release) if surface is not None else None
    if signature is None:
        return None
    call.problems[release] = misfit(signature, call.given, call.names, is_open=call.is_open)
    return bool(call.problems[release])
