"""Which version of a library a project runs with: the files that say so, and what a range covers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from dslint.model.context import VersionFact
from dslint.model.versions.plain import Part, allows, between, numbers, pinned, plain_range
from dslint.model.versions.requirements import LIBRARIES, facts_of, parse_versions, statements_of

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

__all__ = [
    "LIBRARIES",
    "covers",
    "facts_of",
    "is_pin",
    "parse_versions",
    "stated_version",
    "statements_of",
    "stronger",
    "told_files",
    "version_files",
    "workflow_files",
]

# File names by strength of evidence: a lock says what is installed, a requirement what is wanted.
_ORDER = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"uv\.lock$",
        r"poetry\.lock$",
        r"pdm\.lock$",
        r"pipfile\.lock$",
        r"pylock\.(.+\.)?toml$",
        r"pixi\.lock$",
        r"conda-lock\.yml$",
        r"requirements[-_.]?lock\.txt$|requirements\.lock$",
        r"requirements\.txt$",
        r"requirements.*(deepspeed|train).*\.txt$|(deepspeed|train)[-_.]?requirements\.txt$",
        r"requirements.*\.txt$|.*[-_.]requirements\.txt$",
        r"constraints.*\.txt$",
        r"pyproject\.toml$",
        r"setup\.cfg$",
        r"setup\.py$",
        r"pipfile$",
        r"pixi\.toml$",
        r"(environment|conda).*\.ya?ml$",
        r"(.*[-_.])?dockerfile.*$",
        r"\.python-version$",
    )
)
# Such parts come after setup.py: a project may install only some of them.
_FOLDER_RANK = 14
# What people call a folder with a Dockerfile.
_DOCKER_FOLDERS = ("docker", "dockerfile", "dockerfiles", ".devcontainer")
# Files that tell a person what to install: they count where no other file of the project names the library.
_TOLD_IN_FOLDERS = ("requirements/install_all.sh", "scripts/install.sh", "scripts/setup.sh")
_TOLD = re.compile(r"(install|setup|build|create|prepare|conda|env)[\w-]*\.sh$|(readme|install)[\w.-]*\.md$", re.I)
# What people call the parts of a split requirements folder; a caller skips those that are not there.
_IN_FOLDER = ("deepspeed", "train", "training", "requirements", "base", "runtime", "default", "common")
_DEVELOPMENT = re.compile(r"doc|lint|test|dev", re.I)


# Folders whose files speak for the project around them.
_PARTS = frozenset(("requirements", *_DOCKER_FOLDERS))


def home_of(path: str) -> str:
    """The folder for which a file speaks that states releases: ``a`` for ``a/docker/Dockerfile``."""
    folder = os.path.dirname(path)
    if folder == ".github/workflows" or folder.endswith("/.github/workflows"):
        return os.path.dirname(os.path.dirname(folder))
    return os.path.dirname(folder) if os.path.basename(folder).lower() in _PARTS else folder


def version_files(names: Iterable[str]) -> list[str]:
    """The files that may state library versions among the names in one folder, strongest evidence first.

    Where a folder ``requirements`` or ``docker`` stands, usual files in it are candidates too; they need not exist.
    """
    ranked: list[tuple[int, bool, str]] = []
    for name in names:
        if name == "requirements":
            ranked += [(_FOLDER_RANK, False, f"requirements/{part}.txt") for part in _IN_FOLDER]
        if name in _DOCKER_FOLDERS:
            ranked.append((len(_ORDER) - 1, False, f"{name}/Dockerfile"))
        base = name.rsplit("/", 1)[-1]
        for rank, pattern in enumerate(_ORDER):
            if pattern.match(base):
                ranked.append((rank, _DEVELOPMENT.search(base) is not None, name))
                break
    ranked.sort(key=lambda item: item[:2])
    return list(dict.fromkeys(name for _, _, name in ranked))


def told_files(names: Iterable[str]) -> list[str]:
    """The install scripts and texts among the names in one folder, scripts first."""
    names = list(names)
    found = [name for name in names if _TOLD.match(name)]
    found += [path for path in _TOLD_IN_FOLDERS if path.partition("/")[0] in names]
    # A translation says the same as README.md, or lags behind.
    texts = sorted((name for name in found if name.lower().endswith(".md")), key=lambda name: (len(name), name))
    return [*sorted(name for name in found if not name.lower().endswith(".md")), *texts[:1]]


def workflow_files(names: Iterable[str]) -> list[str]:
    """The workflows among the names in ``.github/workflows``, as paths from the root."""
    return [f".github/workflows/{name}" for name in names if name.endswith((".yml", ".yaml"))]


def stated_version(text: str, stated_by: str = "--deepspeed-version") -> VersionFact:
    """What a user states: ``0.12.6`` is exactly that release, ``0.16`` any 0.16, ``>=0.9,<0.13`` a range.

    Raises:
        ValueError: the text is no version and no range.
    """
    specifier = _normal(text)
    if specifier is None:
        raise ValueError(f"`{text}` is no version such as 0.12.6 and no range such as >=0.9,<0.13")
    return VersionFact(specifier, None, stated_by)


def is_pin(fact: VersionFact) -> bool:
    """Whether the fact allows one version only."""
    if not fact.specifier:
        return False
    plain = _plain(fact.specifier)
    if plain is not None:
        return pinned(plain) is not None
    return _pinned(fact.specifier) is not None


def stronger(first: VersionFact | None, second: VersionFact | None) -> VersionFact:
    """The better evidence of two: ``first`` comes from the stronger file, so only a pin inside its range beats it."""
    if first is None or not first.is_known:
        return second or VersionFact()
    if second is None or is_pin(first) or not is_pin(second):
        return first
    return second if covers(second, first.specifier) == "yes" else first


def covers(fact: VersionFact, specifier: str, library: str = "deepspeed") -> str:
    """How a version fact relates to a range such as ``">=0.12,<0.13"``.

    ``"yes"``: every release the fact allows lies inside; ``"no"``: none does; ``"maybe"``: some do, or nobody knows.
    The releases of DeepSpeed are known one by one; of another library any number may be a release.
    """
    if not fact.specifier and plain_range(specifier) is not None:
        return "maybe"  # the usual case, for which packaging need not be loaded
    if library == "deepspeed":
        inside = _plainly_inside(fact.specifier, specifier) or _inside(fact.specifier, specifier)
    else:
        inside = _sampled(fact.specifier, specifier) or _inside(fact.specifier, specifier, is_listed=False)
    return "maybe" if any(inside) != all(inside) or not inside else "yes" if all(inside) else "no"


def holds_between(spans: Sequence[str], first: str, version: VersionFact, library: str) -> str:
    """Whether a version lies in the spans between changes ``[since, until, since ...]``: ``yes`` | ``maybe`` | ``no``.

    ``first`` is the oldest release that was looked at: before it nothing is known.
    """
    if not spans:
        return "no"
    answers = set()
    for at in range(0, len(spans), 2):
        parts = [f">={spans[at]}"] if spans[at] != first else []
        parts += [f"<{spans[at + 1]}"] if at + 1 < len(spans) else []
        answers.add(covers(version, ",".join(parts), library) if parts else "yes")
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


def _plain(specifier: str) -> tuple[Part, ...] | None:
    return plain_range(_as_range(specifier.strip()) or specifier)


@lru_cache(maxsize=256)
def _plainly_inside(specifier: str, wanted: str) -> tuple[bool, ...]:
    """For each release that a plain specifier allows: is it in the plain range? Empty when either is not plain."""
    from dslint.model.deepspeed.releases import RELEASES

    stated, range_ = _plain(specifier), plain_range(wanted)
    if stated is None or range_ is None:
        return ()
    pin = pinned(stated)
    allowed = [pin] if pin is not None else [v for v in map(numbers, RELEASES) if allows(stated, v)]
    return tuple(allows(range_, version) for version in allowed)


@lru_cache(maxsize=256)
def _sampled(specifier: str, wanted: str) -> tuple[bool, ...]:
    """The same where releases are not listed, at versions that stand for all. Empty when either is not plain."""
    stated, range_ = _plain(specifier), plain_range(wanted)
    if stated is None or range_ is None:
        return ()
    pin = pinned(stated)
    allowed = [pin] if pin is not None else [v for v in between(stated, range_) if allows(stated, v)]
    return tuple(allows(range_, version) for version in allowed)


def _inside(specifier: str, wanted: str, is_listed: bool = True) -> tuple[bool, ...]:
    """For each version that a specifier allows: is it in the range?"""
    range_ = _specifiers(wanted)
    if range_ is None:
        raise ValueError(f"`{wanted}` is no version range")
    allowed = _allowed(specifier) if is_listed else _allowed_bounds(specifier, wanted)
    if not allowed:
        return ()
    return tuple(range_.contains(version, prereleases=True) for version in allowed)


@lru_cache(maxsize=256)
def _allowed(specifier: str) -> tuple[Version, ...]:
    """The versions that a fact's specifier allows: the pinned one, else releases."""
    from packaging.version import Version

    from dslint.model.deepspeed.releases import RELEASES

    pinned = _pinned(specifier)
    if pinned is not None:
        return (pinned,)
    normal = _normal(specifier) if specifier else None
    wanted = _specifiers(normal) if normal else None
    if wanted is None:
        return ()
    found = tuple(v for v in map(Version, RELEASES) if wanted.contains(v))
    # Newer than the table: the bounds themselves stand for the releases between them.
    return found or tuple(v for v in _bounds(wanted) if wanted.contains(v, prereleases=True))


@lru_cache(maxsize=256)
def _allowed_bounds(specifier: str, wanted: str) -> tuple[Version, ...]:
    """The versions around the numbers that either range names, as far as the first one allows them."""
    pinned = _pinned(specifier)
    if pinned is not None:
        return (pinned,)
    normal = _normal(specifier) if specifier else None
    stated, range_ = _specifiers(normal) if normal else None, _specifiers(wanted)
    if stated is None or range_ is None:
        return ()
    return tuple(v for v in (*_bounds(stated), *_bounds(range_)) if stated.contains(v, prereleases=True))


def _bounds(wanted: SpecifierSet) -> list[Version]:
    from packaging.version import InvalidVersion, Version

    found = []
    for single in wanted:
        text = single.version.removesuffix(".*")
        for candidate in ("0", text, f"{text}.0.0.1", f"{text}.999", "999999"):
            try:
                found.append(Version(candidate))
            except InvalidVersion:
                continue
    return found


@lru_cache(maxsize=256)
def _pinned(specifier: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    normal = _normal(specifier) if specifier else None
    for part in (normal or "").split(","):
        part = part.strip()
        if part.startswith("==") and not part.endswith("*"):
            try:
                return Version(part.lstrip("= "))
            except InvalidVersion:
                return None
    return None


@lru_cache(maxsize=256)
def _specifiers(text: str) -> SpecifierSet | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


_BARE = re.compile(r"v?(\d+(?:\.\d+)*)(\.[x*])?$", re.I)


def _normal(text: str) -> str | None:
    """A bare version as a PEP 440 specifier; None for what is neither a version nor a range."""
    text = text.strip()
    bare = _as_range(text)
    if bare is not None:
        return bare
    if text[:1].isdigit() or (text[:2].lower().startswith("v") and text[1:2].isdigit()):
        text = "==" + text.lstrip("vV")
    return text if text and _specifiers(text) is not None else None


def _as_range(text: str) -> str | None:
    """``0.12.6`` is that release, ``0.12`` any of its patches; None for what is no bare version."""
    match = _BARE.match(text)
    if match is None:
        return None
    whole = match[1].count(".") >= 2 and not match[2]
    return f"=={match[1]}" if whole else f"=={match[1]}.*"
