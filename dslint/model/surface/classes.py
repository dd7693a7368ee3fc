"""Attributes of classes with those of their bases, and what functions and constructors take."""

from __future__ import annotations

import builtins
from dataclasses import replace
from typing import Any

from dslint.model.surface.blocks import Blocks
from dslint.model.surface.signature import Signature, read_signature

# Classes of the standard library that give their children no names but those of every object.
_PLAIN = {"builtins:object", "^abc.ABC", "^typing.Generic", "^typing.Protocol"}
_DEEP = 30
# The stub of tensors is generated from the declarations of all operators; others are written by hand, and lag behind.
_GENERATED = {"TensorBase", "_TensorBase"}


class Classes:
    """The classes of one library."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def presence(self, module: str, name: str, attribute: str, bits: int, depth: int = 0) -> tuple[int, int]:
        """Where a class has an attribute, its instances included, and where this is not known."""
        cls = self._class(module, name)
        if hasattr(object, attribute):
            return bits, 0
        if attribute.startswith("_") and "__" in attribute[1:].rstrip("_"):
            # A name as Python writes it for `self.__name`.
            return 0, bits
        unknown = 0
        found = self._own(cls, attribute)
        # What a stub never listed may be there all the same, and what it lists may have been there before.
        flags = "do" if found else "dou"
        if name not in _GENERATED:
            unknown |= self._unlisted_before(cls, found) & bits
        found &= bits
        if depth > _DEEP or not cls:
            return found, bits & ~found
        for code, bases in cls.get("p", ()):
            asked = self.blocks.releases_of(code) & bits & ~found
            for base in bases if asked else ():
                inherited = self._in_base(base, attribute, asked, depth)
                found, unknown = found | inherited[0], unknown | inherited[1]
        for flag in flags:
            if flag in cls:
                unknown |= self.blocks.releases_of(cls[flag]) & bits
        return found, unknown & ~found

    def _unlisted_before(self, cls: dict[str, Any], found: int) -> int:
        """The releases before the first one that lists an attribute, where the class has more than is listed."""
        older = (found & -found) - 1 if found else 0
        return self.blocks.releases_of(cls["u"]) & older if "u" in cls else 0

    def _own(self, cls: dict[str, Any], attribute: str) -> int:
        """The releases in which a class itself, or a method of it, binds an attribute."""
        found = 0
        for kind in ("mf", "mv", "mc", "mi"):
            for code, names in cls.get(kind, {}).items():
                if attribute in names.split():
                    found |= self.blocks.releases_of(code)
        return found

    def members(self, module: str, name: str, bit: int) -> frozenset[str]:
        """The attributes that a class itself defines in one release."""
        cls = self._class(module, name)
        return frozenset(
            each
            for kind in ("mf", "mv", "mc")
            for code, names in cls.get(kind, {}).items()
            if self.blocks.releases_of(code) & bit
            for each in names.split()
        )

    def function(self, module: str, name: str, bit: int) -> Signature | None:
        """What a function of a module takes."""
        row = self._pick(self.blocks.line(module, name).get("s", {}).get(name, []), bit)
        return read_signature(row) if row else None

    def constructor(self, module: str, name: str, bit: int, depth: int = 0) -> Signature | None:
        """What a call of a class takes; ``None`` where a base outside of the library decides."""
        row = self._pick(self._class(module, name).get("k", []), bit)
        if row is not None:
            return None if row[1] == "?" else read_signature(row)
        own = self._class(module, name).get("s", {})
        if not depth and self._pick(own.get("__new__", []), bit) and not self._pick(own.get("__init__", []), bit):
            # `Accuracy(task=...)` of torchmetrics: Python calls `__new__` first, with the same arguments.
            found = self.method(module, name, "__new__", bit)
        else:
            found = self.method(module, name, "__init__", bit, depth)
        # A metaclass may take a call otherwise than the constructor does.
        if found is not None and not depth and self._opened(module, name, bit, 0):
            return replace(found, certain=False)
        return found

    def method(self, module: str, name: str, method: str, bit: int, depth: int = 0) -> Signature | None:
        """What a method takes, without the object."""
        cls = self._class(module, name)
        row = self._pick(cls.get("s", {}).get(method, []), bit)
        if row is not None:
            return read_signature(row)
        if depth > _DEEP or not cls or self._flag(cls, "o", bit) or self._is_value(cls, method, bit):
            return None
        for base in self._bases(cls, bit):
            if base in _PLAIN:
                continue
            where, _, own = base.partition(":")
            if base.startswith(("^", "?")) or where == "builtins":
                return None
            if method == "__init__":
                found = self.constructor(where, own, bit, depth + 1)
                if found is None or found.parameters:
                    return found
            elif self.presence(where, own, method, bit)[0] and not hasattr(object, method):
                return self.method(where, own, method, bit, depth + 1)
        return Signature(()) if method == "__init__" else None

    def _is_value(self, cls: dict[str, Any], name: str, bit: int) -> bool:
        groups = cls.get("mv", {})
        return any(name in names.split() and self.blocks.releases_of(code) & bit for code, names in groups.items())

    def _flag(self, cls: dict[str, Any], flag: str, bit: int) -> bool:
        return flag in cls and bool(self.blocks.releases_of(cls[flag]) & bit)

    def _bases(self, cls: dict[str, Any], bit: int) -> list[str]:
        row = self._pick(cls.get("p", []), bit)
        return list(row[1]) if row else []

    def _opened(self, module: str, name: str, bit: int, depth: int) -> bool:
        """The class, or a base of it in the library, may answer to a call in its own way."""
        cls = self._class(module, name)
        if depth > _DEEP or self._flag(cls, "o", bit):
            return True
        inside = [base for base in self._bases(cls, bit) if base[0] not in "^?" and not base.startswith("builtins:")]
        return any(self._opened(*_split(base), bit, depth + 1) for base in inside)

    def _in_base(self, base: str, attribute: str, bits: int, depth: int) -> tuple[int, int]:
        if base in _PLAIN:
            return 0, 0
        module, _, name = base.partition(":")
        if base.startswith(("^", "?")):
            return 0, bits
        if module == "builtins":
            kind = getattr(builtins, name, None)
            return (0, bits) if kind is None else (bits if hasattr(kind, attribute) else 0, 0)
        return self.presence(module, name, attribute, bits, depth + 1)

    def _class(self, module: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.blocks.line(module, name).get("c", {}).get(name, {})
        return found

    def _pick(self, rows: list[list[Any]], bit: int) -> list[Any] | None:
        return next((row for row in rows if self.blocks.releases_of(row[0]) & bit), None)


def _split(base: str) -> tuple[str, str]:
    module, _, name = base.partition(":")
    return module, name
