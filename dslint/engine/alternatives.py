"""Findings of commands that have alternatives: each is told once, with the condition under which it holds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dslint.core.finding import Finding

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.model.launch.command import Condition
    from dslint.model.launch.document import LaunchDoc

    Conditions = tuple[Condition, ...]

P = TypeVar("P", bound=Hashable)


def variants(doc: LaunchDoc) -> list[tuple[Conditions, LaunchDoc]]:
    """The document once for each way that its tests may go, so that no rule sees two alternatives of one command."""
    ways = list(dict.fromkeys(command.conditions for command in doc.commands))
    if not any(ways):
        return [((), doc)]
    found: list[tuple[Conditions, LaunchDoc]] = []
    for way in ways:
        assumed, commands = list(way), []
        for command in doc.commands:
            if not any(_contradict(a, b) for a in assumed for b in command.conditions):
                assumed += command.conditions
                commands.append(command)
        found.append((way, replace(doc, commands=tuple(commands))))
    return found


def place_of(finding: Finding, doc: LaunchDoc) -> Location | None:
    """The command that a finding stands in, ``None`` for one about the text around."""
    where = finding.location
    for command in doc.commands:
        span = command.location.span
        if command.location.path == where.path and span.start <= where.span.start and where.span.end <= span.end:
            return command.location
    return None


def _contradict(one: Condition, other: Condition) -> bool:
    if one.location != other.location or one == other:
        return False
    return one.text == other.text or (one.text.startswith("case ") and other.text.startswith("case "))


def told(
    found: Iterable[tuple[Finding, P, Conditions]], alternatives: Mapping[P, Sequence[Conditions]]
) -> Iterable[Finding]:
    """Every finding once; one that not all alternatives of a command have ends with what those that have it share.

    ``found`` names the command (or document) and its conditions with each finding, ``alternatives`` the conditions of
    all alternatives of each.
    """
    groups: dict[object, list[tuple[Finding, P, Conditions]]] = {}
    for item in found:
        groups.setdefault((item[0].sort_key, item[0].location.span), []).append(item)
    for group in groups.values():
        seen: dict[P, set[Conditions]] = {}
        for _, place, conditions in group:
            seen.setdefault(place, set()).add(conditions)
        # A script that documentation calls is a script all the same: the run that is judged hardest counts.
        certain = [f for f, _, conditions in group if not conditions] or [group[0][0]]
        finding = max(certain, key=lambda f: f.severity.rank)
        if any(() in ways or ways >= set(alternatives[place]) for place, ways in seen.items()):
            yield finding
            continue
        # What all alternatives have in common is the place of the command, not a condition of the finding.
        usual = set.intersection(*(set(way) for place in seen for way in alternatives[place]))
        shared = [c for c in group[0][2] if c not in usual and all(c in conditions for _, _, conditions in group)]
        when = f", when {' and '.join(map(str, shared))}" if shared else ""
        yield replace(finding, message=finding.message + when)
