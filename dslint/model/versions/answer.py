"""From the ranges that files state to the set of releases that they allow together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

NOTHING_SAID, STATED, UNKNOWN = "nothing said", "stated", "unknown"


class Answer(NamedTuple):
    """The state, why it is unknown, the releases, whether files exclude each other, and those of the strongest file."""

    state: str
    reason: str
    releases: tuple[str, ...]
    is_split: bool
    first: tuple[str, ...]


# Where releases come from that nobody lists, and what is said of them.
_ELSEWHERE = {
    "commit": "a commit of its repository or of a copy is installed",
    "folder": "a local copy is installed",
    "preview": "a pre-release or a nightly build is installed",
}


class Key(NamedTuple):
    """What of a bound decides which releases it allows."""

    specifier: str
    taken_from: str
    is_certain: bool
    marker: str


@lru_cache(maxsize=1024)
def answered(library: str, ways: tuple[tuple[Key, ...], ...], are_variants: tuple[bool, ...], python: str) -> Answer:
    """The releases that the files of a project allow together."""
    from dslint.model.versions.known import releases_of

    usual = tuple(release.version for release in releases_of(library) if not release.is_yanked)
    held = [(tuple(_held(way, python)), is_variant) for way, is_variant in zip(ways, are_variants, strict=True)]
    kept = [way for way, is_variant in held if way and not is_variant]
    variants = [] if kept else [way for way, _ in held if way]
    reason = _unknown(library, usual, [*kept, *variants])
    if reason or not (kept or variants):
        return Answer(UNKNOWN, reason, (), False, ()) if reason else Answer(NOTHING_SAID, "", usual, False, usual)
    sets = [_of_way(library, way, usual) for way in (*kept, *variants)]
    if not sets[0]:
        return Answer(UNKNOWN, "no index lists the release that is asked for", (), False, ())
    return Answer(STATED, "", *_joined(sets, usual, are_alternatives=bool(variants)), sets[0])


def _unknown(library: str, usual: tuple[str, ...], ways: list[tuple[tuple[str, str], ...]]) -> str:
    """Why nobody can tell the releases; empty where they can be told."""
    if ways and not usual:
        return f"the releases of {library} are not followed"
    elsewhere = next((taken for way in ways for _, taken in way if taken in _ELSEWHERE), "")
    return _ELSEWHERE.get(elsewhere, "")


def _joined(
    sets: list[tuple[str, ...]], usual: tuple[str, ...], are_alternatives: bool
) -> tuple[tuple[str, ...], bool]:
    """What all sets allow, and whether they exclude each other: then, and of alternatives, what any of them allows."""
    found, is_split = sets[0], False
    for other in filter(None, sets[1:]):
        both = tuple(release for release in found if release in set(other))
        is_split = is_split or not both
        if are_alternatives or not both:
            both = tuple(release for release in usual if release in {*found, *other}) or found
        found = both
    return found, is_split


def _held(way: tuple[Key, ...], python: str) -> Iterator[tuple[str, str]]:
    """The ranges of a file that hold on Linux with this Python: those that surely do, else those of extras."""
    certain: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for specifier, taken_from, is_certain, marker in way:
        if not marker:
            (certain if is_certain else others).append((specifier, taken_from))
        elif (holds := marker_holds(marker, python)) is not False:
            (certain if holds else others).append((specifier, taken_from))
    yield from certain or others


def _of_way(library: str, way: tuple[tuple[str, str], ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    """The releases that one file allows: those in all of its ranges, else (forks of a lock, extras) in any."""
    from dslint.model.versions.ranges import existing

    sets = [usual[-1:] if taken == "git" else existing(library, specifier) for specifier, taken in way]
    read = [set(found) for found in sets if found is not None]
    chosen = set.intersection(*read) if read else set()
    chosen = chosen or set().union(*read)
    listed = sorted((usual.index(release) if release in usual else -1, release) for release in chosen)
    return tuple(release for _, release in listed)


@lru_cache(maxsize=512)
def marker_holds(marker: str, python: str) -> bool | None:
    """Whether an environment marker holds on Linux with this Python; ``None`` where an extra decides."""
    from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName

    if "extra" in marker:
        return None
    environment = {
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64",
        "python_version": python, "python_full_version": f"{python}.9", "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    try:
        return bool(Marker(marker).evaluate(environment))
    except (InvalidMarker, UndefinedEnvironmentName):
        return None


@lru_cache(maxsize=1024)
def newest_for(library: str, releases: tuple[str, ...], python: str) -> str | None:
    """The newest of some releases that installs on a Python."""
    from dslint.model.versions.known import release_of

    for version in reversed(releases):
        release = release_of(library, version)
        if release is not None and release.fits(python):
            return version
    return None
