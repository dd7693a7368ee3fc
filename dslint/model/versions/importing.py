"""Whether releases that install together can be imported together: what one needs of the other while it is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from dslint.core.schemafiles import load_file
from dslint.model.standing.presence import is_there
from dslint.model.surface import Need, surface
from dslint.model.versions.known import distribution_of, package_of
from dslint.model.versions.minimums import asks_of, available_from
from dslint.model.versions.plain import triple
from dslint.model.versions.ranges import contains, pin_of
from dslint.model.versions.required import required_by
from dslint.model.versions.solve import choose

# A test that could not be read whole, `torch>=>=`, says nothing.
_COMPARISON = re.compile(r"(?P<name>[A-Za-z][\w-]*)(?P<specifier>(?:>=|<=|==|!=|<|>|~=)\d[\w.*+]*)")


class Failure(NamedTuple):
    """``library`` cannot be imported: its ``module`` needs ``dotted``, which ``lacking`` has not in its release.

    ``why`` says it where no name tells (``schemas/clashes.json``).
    """

    library: str
    module: str
    dotted: str
    lacking: str
    why: str = ""


def failures(installed: Mapping[str, str]) -> Iterator[Failure]:
    """The libraries of an environment whose import fails, each once, with the first name that is missing.

    ``installed``: the release of each distribution that is known to be there.
    """
    found = (failure_of(library, installed) for library in installed)
    yield from (failure for failure in found if failure is not None)


# Libraries with C++ code for one minor release of torch.
_BUILT_FOR_TORCH = ("torchaudio", "torchvision", "vllm", "xformers")


def broken_metadata(installed: Mapping[str, str], python: str) -> Iterator[Failure]:
    """The libraries whose import fails for a release that their metadata exclude, which later commands may install."""
    for library, release in installed.items():
        for ask in asks_of(package_of(library), release):
            other = distribution_of(ask.other)
            if ask.kind == "imports" and other in installed and not contains(ask.specifier, installed[other]):
                yield Failure(library, ask.place, ask.place, other, f"its import asks for `{other}{ask.specifier}`")
                break
        torch = installed.get("torch", "")
        for required in required_by(library, release, python) if torch and library in _BUILT_FOR_TORCH else ():
            wanted = pin_of(required.specifier) if required.name == "torch" else None
            if wanted is not None and triple(wanted)[:2] != triple(torch)[:2]:
                yield Failure(library, library, library, "torch", f"its C++ code is built for torch {wanted}")


def failure_of(library: str, installed: Mapping[str, str], module: str = "") -> Failure | None:
    """Why one library of an environment cannot be imported; ``module``: which module of it, where not the package."""
    package = package_of(library)
    packages = {package_of(name): name for name in installed}
    clash = next(chain(_asserted(library, installed), _clashes(package, installed, packages)), None)
    found = surface(package) if clash is None else None
    for need in found.needs_at_import(_read(package, installed[library]), module) if found is not None else ():
        other = packages.get(need.library)
        if other is None or other == library or not _holds(need, package, installed, packages):
            continue
        theirs = surface(need.library)
        if theirs is not None and is_there(theirs, need.dotted, installed[other]) is False:
            return Failure(library, need.module, need.dotted, other)
    return clash


def _asserted(library: str, installed: Mapping[str, str]) -> Iterator[Failure]:
    """What the package of a release asserts of others on its import: mmdet 3.3.0 takes no mmcv from 2.2.0 on."""
    for other, specifier in _bounds().get(library, {}).get(installed[library], {}).items():
        if other in installed and not contains(specifier, installed[other]):
            yield Failure(library, library, library, other, f"its import asserts `{other}{specifier}`")


@cache
def _bounds() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = load_file("import_bounds.json")["releases"]
    return found


def _clashes(package: str, installed: Mapping[str, str], packages: Mapping[str, str]) -> Iterator[Failure]:
    """The rows of what was seen to fail that a release meets."""
    for row in _seen():
        other = packages.get(row["other"])
        if row["library"] != package or other is None or (row["beside"] and row["beside"] not in packages):
            continue
        if contains(row["releases"], installed[packages[package]]) and contains(row["others"], installed[other]):
            yield Failure(packages[package], row["module"], row["module"], other, row["what"])


@cache
def _seen() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = load_file("clashes.json")["clashes"]
    return rows


# How often a release that cannot be imported is left for another one.
_MOST_ROUNDS = 200


def importable(domains: Mapping[str, Sequence[str]], python: str) -> dict[str, str]:
    """The newest release of each library so that all install and import together; empty where none are found."""
    left = {name: list(releases) for name, releases in domains.items()}
    for _ in range(_MOST_ROUNDS):
        chosen = choose(left, python)
        failure = next(failures(chosen), None)
        if failure is None:
            return chosen
        # The one of the two that has more releases left gives way; a pin stays.
        name = max((failure.library, failure.lacking), key=lambda name: len(left[name]))
        left[name].remove(chosen[name])
        if not left[name]:
            return {}
    return {}


def _read(package: str, release: str) -> str:
    from dslint.model.standing.presence import read_as

    found = surface(package)
    return read_as(found, release) if found is not None else release


def _holds(need: Need, package: str, installed: Mapping[str, str], packages: Mapping[str, str]) -> bool:
    """Whether all conditions of a need are known to hold."""
    return all(condition_holds(condition, package, installed, packages) is True for condition in need.conditions)


def condition_holds(
    condition: str, package: str, installed: Mapping[str, str], packages: Mapping[str, str]
) -> bool | None:
    """``transformers>=4.38``, ``available:peft``, either with ``!`` in front; ``None`` where nobody knows."""
    plain = condition.removeprefix("!")
    found: bool | None
    if plain.startswith("available:"):
        other = plain.partition(":")[2]
        asked = available_from(package, installed[packages[package]], other)
        found = contains(asked, installed[packages[other]]) if other in packages else None
    elif plain.startswith("if:"):
        found = None
    else:
        match = _COMPARISON.fullmatch(plain)
        distribution = packages.get(match["name"]) if match is not None else None
        found = contains(match["specifier"], installed[distribution]) if match and distribution is not None else None
    return found if found is None or not condition.startswith("!") else not found
