"""Follows a dotted name through modules, re-exports, classes and their bases, for many releases at once.

A set of releases is a number whose bit ``i`` stands for the i-th release. An answer is two sets: where the name is, and
where this is not known.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, NamedTuple

from dslint.model.surface.blocks import Blocks
from dslint.model.surface.needs import Need
from dslint.model.surface.signature import Signature, read_signature

# Classes of the standard library that give their children no names but these.
_PLAIN = {"builtins:object", "^abc.ABC", "^typing.Generic", "^typing.Protocol"}
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
        self.all = (1 << len(blocks.releases)) - 1

    def presence(self, dotted: str) -> tuple[int, int]:
        """The releases that have a name, and those of which this is not known."""
        parts = dotted.split(".")
        if parts[0] != self.library:
            return 0, self.all
        return self._in_module(self.library, parts[1:], self._exists(self.library), 0)

    def signature(self, dotted: str, bit: int) -> Signature | None:
        """What the name takes in one release."""
        for kind, module, name, rest in self._ends(dotted, bit):
            if kind == "f" and not rest:
                return self._function(module, name, bit)
            if kind == "c" and not rest:
                return self._constructor(module, name, bit, 0)
            if kind == "c" and len(rest) == 1:
                return self._method(module, name, rest[0], bit, 0)
        return None

    def canonical(self, dotted: str, bit: int) -> str | None:
        """Where one release defines what the name means."""
        for _, module, name, rest in self._ends(dotted, bit):
            return ".".join([part for part in (module, name, *rest) if part])
        return None

    def moved(self, dotted: str) -> str | None:
        """Where the newest release has what a name meant that is gone there."""
        return None

    def needs(self, module: str, bit: int) -> tuple[Need, ...]:
        """Names of other libraries that the import of a module asks for."""
        return ()

    def meanings(self, module: str, name: str) -> list[Meaning]:
        """What a name of a module is, by releases."""
        line = self.blocks.line(module, name)
        found = []
        for kind in "vfx":
            for code, names in line.get(kind, {}).items():
                if name in names.split():
                    found.append(Meaning(kind, module, name, self.blocks.releases_of(code)))
        for target, groups in line.get("a", {}).items():
            for code, names in groups.items():
                for each in names.split():
                    own, _, other = each.partition("=")
                    if own == name:
                        found.append(Meaning("a", target, other or own, self.blocks.releases_of(code)))
        for target, names in line.get("m", {}).items():
            if name in names:
                found.append(Meaning("m", target, "", self.blocks.releases_of(names[name])))
        cls = line.get("c", {}).get(name)
        if cls is not None:
            found.append(Meaning("c", module, name, self.blocks.releases_of(cls["b"])))
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
        for target, same in self._same(module):
            inside = self._in_module(target, parts, bits & same, depth + 1)
            outside = self._in_module(module, parts, bits & ~same, depth + 1) if bits & ~same else (0, 0)
            if bits & same:
                return inside[0] | outside[0], inside[1] | outside[1]
        name, rest = parts[0], parts[1:]
        found = unknown = seen = ever = 0
        for meaning in self.meanings(module, name):
            ever |= meaning.bits
            own = meaning.bits & bits
            if own:
                seen |= own
                more = self._in(meaning, rest, own, depth)
                found, unknown = found | more[0], unknown | more[1]
        below = f"{module}.{name}"
        submodule = self._exists(below) & bits
        if submodule:
            seen |= submodule
            more = self._in_module(below, rest, submodule, depth + 1)
            found, unknown = found | more[0], unknown | more[1]
        missing = bits & ~seen
        # A stub lists what C code defines: what it once had and has no more is gone, what it never had may be there.
        unsure = self._opened(module, _OPEN) | (0 if ever else self._opened(module, _STUB))
        return found, (unknown | (missing & unsure)) & ~found

    def _in(self, meaning: Meaning, rest: list[str], bits: int, depth: int) -> tuple[int, int]:
        if not rest:
            return bits, 0
        if meaning.kind == "m":
            return self._in_module(meaning.module, rest, bits & self._exists(meaning.module), depth + 1)
        if meaning.kind == "a":
            return self._in_module(meaning.module, [meaning.name, *rest], bits, depth + 1)
        if meaning.kind == "c" and len(rest) == 1:
            return self._in_class(meaning.module, meaning.name, rest[0], bits, depth + 1)
        return 0, bits

    def _class(self, module: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.blocks.line(module, name).get("c", {}).get(name, {})
        return found

    def _in_class(self, module: str, name: str, attribute: str, bits: int, depth: int) -> tuple[int, int]:
        """Where a class has an attribute, its instances included."""
        cls = self._class(module, name)
        if hasattr(object, attribute):
            return bits, 0
        found = 0
        for kind in ("mf", "mv", "mc", "mi"):
            for code, names in cls.get(kind, {}).items():
                if attribute in names.split():
                    found |= self.blocks.releases_of(code)
        found &= bits
        unknown = 0
        if depth > _DEEP:
            return found, bits & ~found
        for code, bases in cls.get("p", ()):
            asked = self.blocks.releases_of(code) & bits & ~found
            for base in bases if asked else ():
                inherited = self._in_base(base, attribute, asked, depth)
                found, unknown = found | inherited[0], unknown | inherited[1]
        for flag in "do":
            if flag in cls:
                unknown |= self.blocks.releases_of(cls[flag]) & bits
        return found, unknown & ~found

    def _in_base(self, base: str, attribute: str, bits: int, depth: int) -> tuple[int, int]:
        if base in _PLAIN:
            return 0, 0
        module, _, name = base.partition(":")
        if base.startswith(("^", "?")):
            return 0, bits
        if module == "builtins":
            kind = getattr(builtins, name, None)
            return (0, bits) if kind is None else (bits if hasattr(kind, attribute) else 0, 0)
        return self._in_class(module, name, attribute, bits, depth + 1)

    def _ends(self, dotted: str, bit: int) -> Iterator[tuple[str, str, str, list[str]]]:
        """What a name ends at in one release: kind, module, name, and what is left of the name."""
        parts = dotted.split(".")
        module, rest = parts[0], parts[1:]
        for _ in range(_DEEP):
            for target, same in self._same(module):
                if same & bit:
                    module = target
            if not rest:
                yield "m", module, "", []
                return
            meaning = next((each for each in self.meanings(module, rest[0]) if each.bits & bit), None)
            if meaning is None:
                module, rest = f"{module}.{rest[0]}", rest[1:]
                if not self._exists(module) & bit:
                    return
            elif meaning.kind == "m":
                module, rest = meaning.module, rest[1:]
            elif meaning.kind == "a":
                module, rest = meaning.module, [meaning.name, *rest[1:]]
            else:
                yield meaning.kind, module, rest[0], rest[1:]
                return

    def _pick(self, rows: list[list[Any]], bit: int) -> list[Any] | None:
        return next((row for row in rows if self.blocks.releases_of(row[0]) & bit), None)

    def _function(self, module: str, name: str, bit: int) -> Signature | None:
        row = self._pick(self.blocks.line(module, name).get("s", {}).get(name, []), bit)
        return read_signature(row) if row else None

    def _constructor(self, module: str, name: str, bit: int, depth: int) -> Signature | None:
        """What a call of a class takes; ``None`` where a base outside of the library decides."""
        cls = self._class(module, name)
        row = self._pick(cls.get("k", []), bit)
        if row is not None:
            return None if row[1] == "?" else read_signature(row)
        return self._method(module, name, "__init__", bit, depth)

    def _method(self, module: str, name: str, method: str, bit: int, depth: int) -> Signature | None:
        cls = self._class(module, name)
        row = self._pick(cls.get("s", {}).get(method, []), bit)
        if row is not None:
            return read_signature(row)
        if depth > _DEEP or not cls or ("o" in cls and self.blocks.releases_of(cls["o"]) & bit):
            return None
        for code, names in cls.get("mv", {}).items():
            if method in names.split() and self.blocks.releases_of(code) & bit:
                return None
        bases = self._pick(cls.get("p", []), bit)
        for base in bases[1] if bases else ():
            where, _, own = base.partition(":")
            if base in _PLAIN:
                continue
            if base.startswith(("^", "?")) or where == "builtins":
                return None
            if self._in_class(where, own, method, bit, 0)[0] and not hasattr(object, method):
                return self._method(where, own, method, bit, depth + 1)
            if method == "__init__":
                found = self._constructor(where, own, bit, depth + 1)
                if found is None or found.parameters:
                    return found
        return Signature(()) if method == "__init__" else None
