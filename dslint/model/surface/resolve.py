"""Follows a dotted name through modules, re-exports, classes and their bases, for many releases at once.

A set of releases is a number whose bit ``i`` stands for the i-th release. An answer is two sets: where the name is, and
where this is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dslint.model.surface.blocks import Blocks
from dslint.model.surface.classes import Classes

_DEEP = 30
# Levels of a module whose names are not all known; see scripts/surface/modules.py.
_STUB, _OPEN = "1", "2"


class Meaning(NamedTuple):
    """What a name of a module is in some releases: kind, module and name where it is defined, the releases."""

    kind: str
    module: str
    name: str
    bits: int


class Resolver:
    """Asks the blocks of one library."""

    def __init__(self, library: str, blocks: Blocks) -> None:
        self.library = library
        self.blocks = blocks
        self.classes = Classes(blocks)
        self.all = (1 << len(blocks.releases)) - 1
        # Programs use the same names again and again, and rules ask for each release of each.
        self._known: dict[tuple[str, str], list[Meaning]] = {}

    def presence(self, dotted: str) -> tuple[int, int]:
        """The releases that have a name, and those of which this is not known."""
        parts = dotted.split(".")
        if parts[0] != self.library:
            return 0, self.all
        return self._in_module(self.library, parts[1:], self._exists(self.library), 0)

    def ends(self, dotted: str, bit: int) -> tuple[str, str, str, list[str]] | None:
        """What a name ends at in one release: kind, module, name, and what is left of the name."""
        module, *rest = dotted.split(".")
        for _ in range(_DEEP):
            for target, same in self._same(module):
                if same & bit:
                    module = target
            if not rest:
                return "m", module, "", []
            meaning = next((each for each in self._meanings(module, rest[0]) if each.bits & bit), None)
            if meaning is None:
                module, rest = f"{module}.{rest[0]}", rest[1:]
                if not self._exists(module) & bit:
                    return None
            elif meaning.kind == "m":
                module, rest = meaning.module, rest[1:]
            elif meaning.kind == "a":
                module, rest = meaning.module, [meaning.name, *rest[1:]]
            else:
                return meaning.kind, module, rest[0], rest[1:]
        return None

    def moved(self, dotted: str) -> str | None:
        """Where the newest release has what a name meant that is gone there."""
        parts = dotted.split(".")
        for length in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:length])
            if self.blocks.head(module):
                target = self.blocks.line(module, parts[length]).get(">", {}).get(parts[length])
                return ".".join([target, *parts[length + 1 :]]) if target else None
        return None

    def names(self, module: str, bit: int) -> frozenset[str]:
        """The names that a module binds in one release."""
        found: set[str] = set()
        for line in self.blocks.lines(module):
            groups = [line.get(kind, {}) for kind in "vfx"] + list(line.get("a", {}).values())
            for group in groups:
                for code, names in group.items():
                    if self.blocks.releases_of(code) & bit:
                        found.update(each.partition("=")[0] for each in names.split())
            for targets in line.get("m", {}).values():
                found.update(name for name, code in targets.items() if self.blocks.releases_of(code) & bit)
            for name, cls in line.get("c", {}).items():
                if self.blocks.releases_of(cls["b"]) & bit:
                    found.add(name)
        return frozenset(found)

    def modules(self, bit: int) -> list[str]:
        """All modules of one release."""
        return [module for module in self.blocks.modules() if self._exists(module) & bit]

    def _meanings(self, module: str, name: str) -> list[Meaning]:
        """What a name of a module is, by releases."""
        found = self._known.get((module, name))
        if found is None:
            found = self._known[module, name] = self._read(module, name)
        return found

    def _read(self, module: str, name: str) -> list[Meaning]:
        line, releases = self.blocks.line(module, name), self.blocks.releases_of
        found = []
        for kind in "vfx":
            for code, names in line.get(kind, {}).items():
                if name in names and name in names.split():
                    found.append(Meaning(kind, module, name, releases(code)))
        for target, groups in line.get("a", {}).items():
            for code, names in groups.items():
                own = _other_name(name, names) if name in names else ""
                if own:
                    found.append(Meaning("a", target, own, releases(code)))
        for target, names in line.get("m", {}).items():
            if name in names:
                found.append(Meaning("m", target, "", releases(names[name])))
        cls = line.get("c", {}).get(name)
        if cls is not None:
            found.append(Meaning("c", module, name, releases(cls["b"])))
        return found

    def _exists(self, module: str) -> int:
        head = self.blocks.head(module)
        return self.blocks.releases_of(head["b"]) if head else 0

    def _same(self, module: str) -> Iterator[tuple[str, int]]:
        """The modules that a module is another name of."""
        head = self.blocks.head(module) or {}
        for target, code in head.get("=", {}).items():
            yield target, self.blocks.releases_of(code)

    def _opened(self, module: str, level: str) -> int:
        head = self.blocks.head(module) or {}
        code = head.get("o", {}).get(level)
        return self.blocks.releases_of(code) if code is not None else 0

    def _in_module(self, module: str, parts: list[str], bits: int, depth: int) -> tuple[int, int]:
        """Where the rest of a name is, from a module that these releases have."""
        if not parts or not bits or depth > _DEEP:
            return (bits, 0) if not parts else (0, bits)
        name, rest = parts[0], parts[1:]
        found, unknown, elsewhere = self._elsewhere(module, parts, bits, depth)
        bits &= ~elsewhere
        seen = ever = 0
        for meaning in self._meanings(module, name):
            ever |= meaning.bits
            own = meaning.bits & bits
            if own:
                seen |= own
                more = self._in(meaning, rest, own, depth)
                found, unknown = found | more[0], unknown | more[1]
        below = f"{module}.{name}"
        ever |= self._exists(below)
        submodule = self._exists(below) & bits
        if submodule:
            seen |= submodule
            more = self._in_module(below, rest, submodule, depth + 1)
            found, unknown = found | more[0], unknown | more[1]
        missing = bits & ~seen
        # A stub lists what C code defines: what it once had and has no more is gone, what it never had may be there.
        unsure = (
            self._opened(module, _OPEN) | (0 if ever else self._opened(module, _STUB)) | self._guessed(module, name)
        )
        return found, (unknown | (missing & unsure)) & ~found

    def _elsewhere(self, module: str, parts: list[str], bits: int, depth: int) -> tuple[int, int, int]:
        """Where the name is in releases in which the module is another name of a module; which these are."""
        found = unknown = elsewhere = 0
        for target, same in self._same(module):
            own = bits & same
            elsewhere |= own
            if own:
                more = self._in_module(target, parts, own, depth + 1)
                missing = own & ~(more[0] | more[1]) & self._guessed(module, parts[0])
                found, unknown = found | more[0], unknown | more[1] | missing
        return found, unknown, elsewhere

    def _guessed(self, module: str, name: str) -> int:
        """The releases in which a module looks for another name that is meant."""
        head = self.blocks.head(module) or {}
        codes = [code for suffix, code in head.get("?", {}).items() if name.endswith(suffix)]
        return self.blocks.releases_of(codes[0]) if codes else 0

    def _in(self, meaning: Meaning, rest: list[str], bits: int, depth: int) -> tuple[int, int]:
        if not rest:
            return bits, 0
        if meaning.kind == "m":
            return self._in_module(meaning.module, rest, bits & self._exists(meaning.module), depth + 1)
        if meaning.kind == "a":
            return self._in_module(meaning.module, [meaning.name, *rest], bits, depth + 1)
        if meaning.kind == "c" and len(rest) == 1:
            return self.classes.presence(meaning.module, meaning.name, rest[0], bits, depth + 1)
        return 0, bits


def _other_name(name: str, names: str) -> str:
    """The name under which a module has what another one calls ``name``; empty when it is not among these."""
    for each in names.split():
        own, _, other = each.partition("=")
        if own == name:
            return other or own
    return ""
