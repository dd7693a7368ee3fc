"""Whether a dotted name of a library is there in a release, and which part of it is the first that is not."""

from __future__ import annotations

from functools import lru_cache

from dslint.core.schemafiles import load_file
from dslint.model.standing.calls import CHANGES
from dslint.model.surface import Presence, Signature, Surface
from dslint.model.versions.plain import triple

# So many releases, from the oldest to the newest, tell whether a signature ever changed.
_SAMPLES = 6


@lru_cache(maxsize=20_000)
def presence(surface: Surface, dotted: str) -> Presence:
    """Where a name is; programs ask for the same names again and again."""
    return surface.presence(dotted)


def is_there(surface: Surface, dotted: str, release: str) -> bool | None:
    """Whether a release has a name; ``None`` where nobody knows."""
    since = _refused().get(dotted)
    if since is not None and triple(release) >= triple(since):
        return False
    read = read_as(surface, release)
    found = presence(surface, dotted).in_release(read) if read else None
    return _is_registered(surface, dotted, read) if found is False else found


@lru_cache(maxsize=1000)
def _is_registered(surface: Surface, dotted: str, release: str) -> bool:
    """Whether a package has a name that its modules add to their `__all__` while they are imported."""
    home, _, name = dotted.rpartition(".")
    if all(home != row["home"] for row in load_file(CHANGES)["registered"]):
        return False
    inside = [f"{module}.{name}" for module in surface.modules(release) if module.startswith(f"{home}.")]
    return any(surface.canonical(full, release) == full for full in inside)


@lru_cache(maxsize=1)
def _refused() -> dict[str, str]:
    """Names to which a module answers with an error, by the release since which it does."""
    return {row["name"]: row["since"] for row in load_file(CHANGES)["refused_names"]}


@lru_cache(maxsize=1)
def _added_by_others() -> tuple[str, ...]:
    return tuple(row["name"] for row in load_file(CHANGES)["added_by_others"])


def is_made_by_others(dotted: str) -> bool:
    """Whether something else than the text of the library makes a name: another package (`torch.xpu`), C code."""
    return any(dotted == name or dotted.startswith(f"{name}.") for name in _added_by_others())


@lru_cache(maxsize=1)
def held() -> dict[str, str]:
    """Which class of a library an attribute of an object is of: `transformers:Trainer.args`."""
    rows = load_file(CHANGES)["held"]
    return {f"{row['library']}:{row['class']}.{row['attribute']}": row["is"] for row in rows}


@lru_cache(maxsize=20_000)
def never_changes(surface: Surface, dotted: str) -> bool:
    """Whether a function has the same signature in all releases, or none that is known."""
    releases = surface.releases
    chosen = {releases[at * (len(releases) - 1) // (_SAMPLES - 1)] for at in range(_SAMPLES)}
    found = [surface.signature(dotted, release) for release in sorted(chosen)]
    return all(signature == found[0] for signature in found)


@lru_cache(maxsize=20_000)
def signature_in(surface: Surface, dotted: str, release: str) -> Signature | None:
    """The signature of a function in a release; ``None`` where nobody can be sure of it."""
    read = read_as(surface, release) if dotted not in _overridden() else ""
    found = surface.signature(dotted, read) if read else None
    if found is None or not found.certain:
        return None
    last = dotted.removesuffix(".__init__").rpartition(".")[2]
    is_class = last[:1].isupper()
    # A class without `__init__` may be made by its `__new__`; decorators of transformers let its classes take more.
    return None if is_class and (not found.parameters or surface.library == "transformers") else found


def first_missing(surface: Surface, dotted: str, release: str) -> str:
    """The shortest part of a dotted name, from the library on, that a release lacks for certain."""
    parts = dotted.split(".")
    for end in range(2, len(parts) + 1):
        name = ".".join(parts[:end])
        found = is_there(surface, name, release)
        if found is not True:
            return name if found is False else ""
    return ""


def read_as(surface: Surface, release: str) -> str:
    """The release that was read and stands for another one: itself, else the nearest patch of the same minor release.

    Empty where none was read, or where nobody can be sure: the patches of some libraries differ as minor releases do.
    """
    is_other = release not in surface.releases and surface.library in _unlike_patches()
    return "" if is_other else _nearest(surface.releases, release)


@lru_cache(maxsize=1)
def _unlike_patches() -> frozenset[str]:
    """Libraries whose patches differ as minor releases do, and of which the last ones alone were read."""
    return frozenset(row["library"] for row in load_file(CHANGES)["unlike_patches"])


@lru_cache(maxsize=1)
def _overridden() -> frozenset[str]:
    """Methods of classes that nobody makes: every object is of a class below, whose method takes other arguments."""
    return frozenset(row["name"] for row in load_file(CHANGES)["overridden_methods"])


@lru_cache(maxsize=4096)
def _nearest(releases: tuple[str, ...], release: str) -> str:
    if release in releases:
        return release
    wanted = triple(release)
    same = [other for other in releases if triple(other)[:2] == wanted[:2]]
    before = [other for other in same if triple(other) <= wanted]
    return before[-1] if before else same[0] if same else ""
