"""One release as it is kept between the steps: plain data, with all names resolved."""

from __future__ import annotations

import re
from typing import Any

from surface.classes import Class
from surface.modules import Entry
from surface.release import Release

_MEMBERS_NOT_KEPT = re.compile(r"modeling_(tf|flax)_|^diffusers\.(pipelines|models)\.")

# Classes of other libraries that are no dataclasses.
_NO_FIELDS = re.compile(r"^\^(typing|abc|enum|collections)\.|Mixin$|^\^torch\.nn\.|\.PushToHub\w*$")


def linked(release: Release) -> dict[str, Any]:
    """The modules with their names."""
    exported = _exported(release)
    modules: dict[str, Any] = {}
    for name, module in release.modules.items():
        public = not _private(name)
        names = {}
        for each, entry in module.names.items():
            kept = f"{name}:{each}" in exported or (public and not each.startswith("_"))
            names[each] = row(entry, release, name, kept)
        modules[name] = {"o": module.opened, "n": names}
    for name, target in release.aliases.items():
        modules.setdefault(name, {"o": 0, "n": {}, "is": target})
    return modules


def _private(dotted: str) -> bool:
    return any(part.startswith("_") for part in dotted.split("."))


def _exported(release: Release) -> set[str]:
    """What public names of public packages are in the end."""
    found = set()
    for name, module in release.modules.items():
        if _private(name):
            continue
        for each, entry in module.names.items():
            if entry.kind == "i" and not each.startswith("_") and entry.target.startswith(release.library):
                source, own, _ = release.resolve(entry.target)
                found.add(f"{source}:{own}")
    return found


def row(entry: Entry, release: Release, module: str, kept: bool) -> list[Any]:
    """A name: its kind first, then what is known of it."""
    if entry.kind == "v":
        return ["v"]
    if entry.kind == "f":
        return ["f", entry.sig.row() if entry.sig and kept else None]
    if entry.kind == "i":
        source, name, found = release.resolve(entry.target)
        if name is None:
            return ["m", source] if source in release.modules else ["x"]
        if found is not None or (source in release.modules and release.modules[source].opened):
            return ["a", source, name]
        return ["x"]
    assert entry.cls is not None
    cls = entry.cls
    bases = [release.dotted(module, base) for base in cls.bases]
    if not kept or _MEMBERS_NOT_KEPT.search(module):
        return ["c", bases, None]
    data = {
        "m": cls.members,
        "i": sorted(cls.instance - set(cls.members)),
        "d": int(cls.dynamic),
        "o": int(cls.opened),
        "s": {name: sig.row() for name, sig in cls.sigs.items()},
        "k": _fields(cls, release, module),
    }
    return ["c", bases, data]


def _fields(cls: Class, release: Release, module: str) -> str | None:
    """The parameters of the constructor that a dataclass gets, with the fields of its bases; ``?`` where not known."""
    if cls.fields is None or "__init__" in cls.members:
        return None
    fields = _all_fields(cls, release, module, 0)
    if fields is None:
        return "?"
    positional = [f"{name}={text}" if text is not None else name for name, text, only in fields if not only]
    keywords = [f"{name}={text}" if text is not None else name for name, text, only in fields if only]
    return ", ".join([*positional, *(["*", *keywords] if keywords else [])])


def _all_fields(
    cls: Class, release: Release, module: str, depth: int
) -> list[tuple[str, str | None, bool]] | None:
    fields: dict[str, tuple[str, str | None, bool]] = {}
    for base in reversed(cls.bases):
        where = release.dotted(module, base)
        if where.startswith("builtins:") or _NO_FIELDS.search(where):
            continue
        source, _, name = where.partition(":")
        entry = release.modules[source].names.get(name) if source in release.modules else None
        if entry is None or entry.cls is None or depth > 9:
            return None
        inherited = _all_fields(entry.cls, release, source, depth + 1)
        if inherited is None:
            return None
        for each in inherited:
            fields[each[0]] = each
    for each in cls.fields or ():
        text = each[1]
        fields[each[0]] = (each[0], "..." if text == "<factory>" else text, each[2])
    return list(fields.values())
