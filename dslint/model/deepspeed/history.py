"""Since which release DeepSpeed knows a key, refuses what stands beside it, and takes another default.

All of it is data: ``schemas/deepspeed`` is generated from the sources of the releases
(``scripts/generate_deepspeed_history.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dslint.core.finding import Severity
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named
from dslint.model.deepspeed.releases import RELEASES
from dslint.model.deepspeed.schema import NEWEST, history, numbers, point_of, schema_at
from dslint.model.versions.resolve import covers, is_pin


def known_since(pointer: str) -> str | None:
    """The first release that knows a key; ``None``: 0.9.0 or older, or a key that nobody knows."""
    return _nearest("since", pointer)


def known_until(pointer: str) -> str | None:
    """The release that no longer reads a key that older ones read."""
    return _nearest("until", pointer)


def refused_key_since(pointer: str) -> str | None:
    """The release from which on the presence of a key stops DeepSpeed."""
    found: str | None = history()["refused"].get(pointer)
    return found


def _nearest(table: str, pointer: str) -> str | None:
    since: dict[str, str] = history()[table]
    while pointer:
        if pointer in since:
            return since[pointer]
        pointer = pointer.rpartition("/")[0]
    return None


def strict_since(pointer: str) -> str | None:
    """The release that began to refuse unknown keys in the section of a pointer; ``None``: 0.9.0 or older."""
    since: dict[str, str] = history()["strict_since"]
    return next((version for section, version in since.items() if f"{pointer}/".startswith(f"{section}/")), None)


def later(*releases: str | None) -> str | None:
    """The latest of some releases."""
    return max(filter(None, releases), key=numbers, default=None)


def is_newer_than(pointer: str, version: VersionFact) -> bool:
    """The key is certainly unknown to the release in use."""
    since = known_since(pointer)
    return since is not None and covers(version, f"<{since}") == "yes"


@lru_cache(maxsize=256)
def _releases(specifier: str) -> tuple[str, ...]:
    version = VersionFact(specifier)
    if is_pin(version):
        return (specifier.lstrip("= v"),)
    return tuple(r for r in RELEASES if covers(VersionFact(f"=={r}"), specifier) == "yes") if specifier else ()


def release_in_use(version: VersionFact) -> str:
    """The release that judges: the pinned one, the newest of a range, the newest of all where nobody says."""
    return next(reversed(_releases(version.specifier)), NEWEST)


def points_in_use(version: VersionFact) -> tuple[str, ...]:
    """The points of change that describe the releases in use, oldest first; the newest where nobody says."""
    found = tuple(dict.fromkeys(point_of(release) for release in _releases(version.specifier)))
    return found or (point_of(NEWEST),)


def defaults_in_use(pointer: str, version: VersionFact) -> list[Any]:
    """The different defaults that the releases in use have for a key; empty where none is known.

    Releases that do not know the key are left out.
    """
    changed: dict[str, Any] | None = history()["defaults"].get(pointer)
    if changed is None:
        found = schema_at(pointer, release_in_use(version)) or schema_at(pointer) or {}
        return [found["default"]] if "default" in found else []
    values: list[Any] = []
    for point in points_in_use(version):
        reached = [value for release, value in changed.items() if numbers(release) <= numbers(point)]
        if reached and reached[-1] not in values:
            values.append(reached[-1])
    return values


def breaks_since(since: str | None) -> str:
    """The words for what an upgrade does."""
    return f"DeepSpeed {since} and later stop"


def refusal(version: VersionFact, since: str | None, older: str = "accepts it") -> tuple[Severity, str]:
    """How bad it is that DeepSpeed refuses something since a release, and the words for who stops.

    ``older`` says what a release before that does. A pin before it is an information (it breaks on upgrade); a range
    that reaches both sides a warning; where nobody states a release, the newest one judges.
    """
    reached = covers(version, f">={since}") if since else "yes"
    if reached == "no":
        return Severity.INFO, f"{version_named(version)} {older}, {since} and later stop"
    if reached == "maybe":
        severity = Severity.WARNING if version.is_known else Severity.ERROR
        return severity, f"DeepSpeed {since} and later stop"
    return Severity.ERROR, f"{version_named(version) if is_pin(version) else 'DeepSpeed'} stops"
