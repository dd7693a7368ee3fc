"""Where the newest release has what a name meant that is gone."""

from __future__ import annotations

from collections import defaultdict

from surface.merge import Names

_KINDS = ("a", "f")


def moved(modules: dict[str, Names], newest: int) -> dict[tuple[str, str], str]:
    """(module, name) of public names that the newest release lacks -> the one public name there that is it.

    Only a definition of the same name counts, and only when the newest release has a single one.
    """
    exports: dict[tuple[str, str], list[str]] = defaultdict(list)
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for module, names in modules.items():
        if _public(module) and names.exists & newest:
            for name, canonical in _definitions(module, names, newest):
                if name == canonical[1]:
                    exports[canonical].append(module)
                    places[name].add(canonical)
    found = {}
    for module, names in modules.items():
        if not _public(module):
            continue
        here = {name for name, _ in _definitions(module, names, newest)}
        gone = {name for name, _ in _definitions(module, names, ~newest)} - here - _others(names, newest)
        for name in gone:
            if len(places.get(name, ())) == 1 and not name.startswith("_"):
                (canonical,) = places[name]
                best = min(exports[canonical], key=lambda each: (each.count("."), each))
                found[module, name] = f"{best}.{name}"
    return found


def _public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _definitions(module: str, names: Names, bits: int) -> list[tuple[str, tuple[str, str]]]:
    """The functions and classes that a module has in some of the releases, and where they are defined."""
    found = [(name, (module, name)) for name, cls in names.classes.items() if cls.exists & bits]
    for key, named in names.plain.items():
        if key[0] in _KINDS:
            for name, where in named.items():
                if where & bits:
                    found.append((name, (key[1], key[2]) if key[0] == "a" else (module, name)))
    return found


def _others(names: Names, bits: int) -> set[str]:
    """All other names of a module."""
    return {name for key, named in names.plain.items() if key[0] not in _KINDS for name, b in named.items() if b & bits}
