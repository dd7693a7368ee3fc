"""Write ``schemas/surface``: which release of a library has which names, read from its files as text.

    python scripts/generate_surface.py --cache FOLDER                      # all libraries
    python scripts/generate_surface.py --cache FOLDER peft trl             # these
    python scripts/generate_surface.py --cache FOLDER --add peft==0.22.0   # one release more
    python scripts/generate_surface.py --cache FOLDER --needs              # what libraries need of each other, last

The folder keeps the texts of releases and what was read from them: a run that was cut off goes on where it was, and
only what is new is downloaded. Nothing of a release is built, installed or run.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gzip
import hashlib
import json
import os
import sys
import time
from typing import Any

from packaging.version import Version
from surface import index, pack
from surface.linked import linked
from surface.merge import Names
from surface.metadata import metadata
from surface.minimums import minimums
from surface.modules import Module
from surface.needs import APART, needs
from surface.release import Release

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TARGET = os.path.join(_ROOT, "schemas", "surface")
_MINIMUMS = os.path.join(_ROOT, "schemas", "minimums.json")
_CODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "surface")

# The steps before and after the reading.
_OTHERS = ("pack.py", "merge.py", "moved.py", "index.py", "needed.py")


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*", default=list(index.PROJECTS))
    parser.add_argument("--cache", required=True, help="folder for texts of releases")
    parser.add_argument("--add", action="append", default=[], metavar="LIBRARY==RELEASE")
    parser.add_argument("--needs", action="store_true", help="write what the imports of these need, by the names here")
    parser.add_argument("--only", help="a few releases, with commas: for trying")
    args = parser.parse_args()
    for each in args.add:
        _add(*each.split("=="), args.cache)
    libraries = [each.split("==")[0] for each in args.add] or args.libraries
    for library in libraries:
        if not args.needs:
            _library(library, args)
    for library in libraries if args.needs else ():
        if library not in index.NAMES_ONLY:
            _needs(library, args.cache)


def _add(library: str, version: str, cache: str) -> None:
    """Put a release on the list of its library."""
    listed = [each for each in _listed(library, cache) if each.version != version]
    listed.append(index.one(library, version))
    listed.sort(key=lambda each: Version(each.version))
    _list(library, cache, listed)


def _library(library: str, args: argparse.Namespace) -> None:
    started = time.monotonic()
    releases = _listed(library, args.cache)
    if args.only:
        releases = [each for each in releases if each.version in args.only.split(",")]
    modules: dict[str, Names] = {}
    rows = []
    # The newest first: a run that is cut off has read what is asked for most.
    known: dict[str, Module] = {}
    for release in reversed(releases):
        if not os.path.exists(_kept(release, args.cache)):
            known = _read(release, args.cache, known)[1]
    for place, release in enumerate(releases):
        data, _ = _read(release, args.cache, {})
        rows.append(data["release"])
        for name, found in data["modules"].items():
            modules.setdefault(name, Names()).add(found, 1 << place)
    for name, names in modules.items():
        names.finish(name)
    packer = pack.Packer(library, [each.version for each in releases], modules)
    os.makedirs(_TARGET, exist_ok=True)
    size = pack.write(os.path.join(_TARGET, f"{library}.names"), packer, {})
    _write_rows(library, rows)
    print(f"{library}: {len(releases)} releases, {size} bytes, {time.monotonic() - started:.0f} s", file=sys.stderr)


def _listed(library: str, cache: str) -> list[index.Release]:
    """The releases of a library: those that are committed, else what the index has."""
    path = os.path.join(cache, "index", library + ".json")
    if not os.path.exists(path):
        _list(library, cache, _committed(library) or index.wanted(library))
    with open(path) as file:
        listed = json.load(file)
    fields = {field.name for field in dataclasses.fields(index.Release)}
    return [index.Release(**{key: value for key, value in each.items() if key in fields}) for each in listed]


def _list(library: str, cache: str, releases: list[index.Release]) -> None:
    path = os.path.join(cache, "index", library + ".json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump([vars(each) for each in releases], file)


def _committed(library: str) -> list[index.Release]:
    """The releases whose rows are committed: the same files, by their hashes, as the index has them now."""
    path = os.path.join(_TARGET, f"{library}.releases.json")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        rows = json.load(file)["releases"]
    return index.with_hashes(library, {row["sha256"] for row in rows})


def _needs(library: str, cache: str) -> None:
    """Write which names and releases of other libraries this one needs, where not every release has them."""
    # It reads the names that are written here, by the reader of this checkout.
    sys.path.insert(0, _ROOT)
    from surface import needed

    table: dict[str, dict[tuple[str, str, str], int]] = {}
    asked: dict[tuple[str, ...], int] = {}
    releases = _listed(library, cache)
    known: dict[str, Module] = {}
    for place, release in reversed(list(enumerate(releases))):
        data, known = _needed(release, cache, known)
        for entry, rows in data["needs"].items():
            found = table.setdefault(entry, {})
            for dotted, module, conditions in rows:
                key = (dotted, module, " & ".join(conditions))
                found[key] = found.get(key, 0) | 1 << place
        for row in data["minimums"]:
            asked[tuple(row)] = asked.get(tuple(row), 0) | 1 << place
    size = needed.write(os.path.join(_TARGET, f"{library}.needs"), library, table)
    needed.write_minimums(_MINIMUMS, library, [release.version for release in releases], asked)
    print(f"{library}: needs, {size} bytes", file=sys.stderr)


def _needed(release: index.Release, cache: str, known: dict[str, Module]) -> tuple[dict[str, Any], dict[str, Module]]:
    """What a release needs of other libraries, and its modules by their texts."""
    path = os.path.join(cache, "needed", release.library, f"{release.version}.{_code()}.json")
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file), known
    texts = index.fetch(release, cache)
    found = Release(release.library, texts, known, APART)
    data = {"needs": needs(found), "minimums": minimums(release.library, texts)}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w") as file:
        json.dump(data, file)
    os.replace(path + ".part", path)
    return data, found.texts


def _kept(release: index.Release, cache: str) -> str:
    """Where what was read from a release is kept."""
    return os.path.join(cache, "read", release.library, f"{release.version}.{_code()}.json.gz")


def _read(release: index.Release, cache: str, known: dict[str, Module]) -> tuple[dict[str, Any], dict[str, Module]]:
    """What is known of a release, and its modules by their texts."""
    path = _kept(release, cache)
    if os.path.exists(path):
        with gzip.open(path, "rt") as file:
            return json.load(file), {}
    texts = index.fetch(release, cache)
    found = Release(release.library, texts, known)
    row = {**vars(release), **metadata(texts)}
    data = {"release": row, "modules": linked(found)}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with gzip.open(path + ".part", "wt", compresslevel=1) as file:
        json.dump(data, file)
    os.replace(path + ".part", path)
    return data, found.texts


@functools.cache
def _code() -> str:
    """What the reading code is: what an older one has read is not taken."""
    digest = hashlib.sha256()
    for name in sorted(os.listdir(_CODE)):
        if name.endswith(".py") and name not in _OTHERS:
            with open(os.path.join(_CODE, name), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()[:8]


# What is written of a release; what it requires, and when it came: schemas/required.json and releases.json.
_ROW = {"version": "version", "file": "filename", "sha256": "sha256", "programs": "programs"}


def _write_rows(library: str, rows: list[dict[str, Any]]) -> None:
    """The releases, a row each."""
    kept = [{key: row[name] for key, name in _ROW.items()} for row in rows]
    text = '{"$comment": "Generated by scripts/generate_surface.py; do not edit.",\n"releases": [\n'
    text += ",\n".join(map(json.dumps, kept)) + "\n]}\n"
    with open(os.path.join(_TARGET, f"{library}.releases.json"), "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
