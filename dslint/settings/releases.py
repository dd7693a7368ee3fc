"""Releases that a setting may name: those that there are, and some that may come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_TITLES = {"deepspeed": "DeepSpeed", "transformers": "transformers", "accelerate": "accelerate"}
# How far ahead of this dslint a project may be, and how many patches a line may have that no table lists.
_MINORS, _PATCHES = 20, 16


def no_release(library: str, specifier: str) -> str:
    """Why no release can be meant; empty where one can."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    wanted = SpecifierSet(specifier, prereleases=True)
    versions = [Version(part.version.removesuffix(".*")) for part in wanted]
    if any(version.is_prerelease or version.is_postrelease or version.local for version in versions):
        return ""  # no table lists these
    known = _known(library)
    if any(wanted.contains(release) for release in (*known, *_to_come(known, is_complete=library == "deepspeed"))):
        return ""
    exact = specifier.removeprefix("==")
    what = "release" if exact == specifier else f"release {exact.removesuffix('.*')}"
    return f"there is no such {what} of {_TITLES[library]} (known: {known[0]} to {known[-1]})"


def _known(library: str) -> Sequence[str]:
    from dslint.core.schemafiles import load_file

    if library == "deepspeed":
        from dslint.model.deepspeed.releases import RELEASES

        return RELEASES
    if library == "transformers":
        return tuple(load_file("trainer_arguments.json")["transformers"]["releases"])
    return tuple(load_file("accelerate.history.json")["releases"])


def _to_come(known: Sequence[str], is_complete: bool) -> Iterator[str]:
    """Releases after the newest one and before the oldest, and patches of lines of which only the first is listed."""
    if not is_complete:
        oldest = int(known[0].partition(".")[0])
        yield from (f"{m}.{n}.{p}" for m in range(oldest + 1) for n in range(40) for p in range(_PATCHES))
        for release in known:
            yield from (f"{release.rpartition('.')[0]}.{patch}" for patch in range(_PATCHES))
    major, minor, patch = (int(part) for part in known[-1].split(".")[:3])
    yield from (f"{major}.{minor}.{later}" for later in range(patch + 1, patch + _PATCHES))
    for later in range(minor + 1, minor + _MINORS):
        yield from (f"{major}.{later}.{number}" for number in range(_PATCHES))
    yield from (f"{major + 1}.{later}.{number}" for later in range(_MINORS) for number in range(_PATCHES))
