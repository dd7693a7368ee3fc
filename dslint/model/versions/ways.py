"""From what files state to the releases that they allow together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from dslint.core.source import SourceFile
from dslint.model.context import VersionFact
from dslint.model.versions.allowed import Allowed, AllowedReleases, Bound, Way, python_used
from dslint.model.versions.requirements import PYTHON, Statement

# Of what is called like these, a project may have several for different uses.
_MAIN = re.compile(
    r"(requirements?[-_.]?(lock|deepspeed|train|training)?|(deepspeed|train|training)[-_.]?requirements"
    r"|requirements/(base|default|runtime|common|requirements))\.(txt|in|lock)$"
    # Constraints are those of an environment, not of a use.
    r"|constraints[-_.\w]*\.txt$",
    re.I,
)
_SEVERAL = re.compile(r"\.(txt|in|ya?ml)$|dockerfile", re.I)
_ONE = frozenset({"dockerfile", "environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "conda-lock.yml"})
Stated = Sequence[tuple[SourceFile, Statement]]


def ways_by_library(files: Iterable[Stated]) -> dict[str, tuple[Way, ...]]:
    """What each file of one folder says, by library."""
    found: dict[str, list[Way]] = {}
    for stated in files:
        for library, bounds in bounds_by_library(stated).items():
            found.setdefault(library, []).append(bounds)
    return {library: tuple(ways) for library, ways in found.items()}


def bounds_by_library(stated: Stated) -> dict[str, Way]:
    """What one file says, by library."""
    by_library: dict[str, list[Bound]] = {}
    for source, statement in stated:
        by_library.setdefault(statement.name, []).append(bound_of(source, statement))
    return {library: tuple(bounds) for library, bounds in by_library.items()}


def bound_of(source: SourceFile, statement: Statement) -> Bound:
    """What one statement says, with its place."""
    label = f"{statement.name} {statement.specifier or statement.taken_from or 'of any release'} stated here"
    return Bound(
        statement.specifier,
        source.location(statement.span, label),
        source.path.rsplit("/", 1)[-1],
        statement.taken_from,
        statement.certain,
        statement.marker,
        is_variant(source.path) and not (statement.name == PYTHON and statement.certain),
        statement.group,
    )


def is_variant(path: str) -> bool:
    """The file is one of several for different uses: ``requirements_flux.txt``, ``Dockerfile.rocm``."""
    name = "/".join(path.split("/")[-2:]) if "/requirements/" in f"/{path}" else path.rsplit("/", 1)[-1]
    return bool(_SEVERAL.search(name)) and not _MAIN.match(name) and name.lower() not in _ONE


def allowed_by(stated: Mapping[str, VersionFact], levels: Iterable[Mapping[str, tuple[Way, ...]]]) -> Allowed:
    """The releases that hold: what the user states, else the first of the levels that names a library."""
    ways: dict[str, tuple[Way, ...]] = {
        library: ((Bound(fact.specifier, fact.origin, fact.stated_by),),) for library, fact in stated.items()
    }
    pythons: tuple[Way, ...] = ()
    for level in levels:
        # What a README or a workflow names inside the range of the package says which Python is meant.
        pythons += level.get(PYTHON, ())
        for library, found in level.items():
            ways.setdefault(library, found)
    ways.pop(PYTHON, None)
    answers = {library: AllowedReleases(library, found) for library, found in ways.items()}
    pins = {library: answer.releases[0] for library, answer in answers.items() if answer.is_pin}
    python = python_used(AllowedReleases(PYTHON, pythons), pins)
    return Allowed(
        {
            **{library: AllowedReleases(library, found, python) for library, found in ways.items()},
            **({PYTHON: AllowedReleases(PYTHON, pythons, python)} if pythons else {}),
        },
        python,
    )
