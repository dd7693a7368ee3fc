"""All releases of a library together: each name with the set of releases that have it.

A set of releases is a number: bit ``i`` stands for the i-th release.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

# Modules whose names are made in a way that their text does not tell: in functions, by names of variables.
_MADE = {"deepspeed.ops.op_builder", "torch.optim.optimizer"}


class Names:
    """What the releases say of the names of one module."""

    def __init__(self) -> None:
        self.exists = 0
        self.opened: dict[int, int] = defaultdict(int)
        self.same: dict[str, int] = defaultdict(int)
        # Ends of names to which a module may answer besides.
        self.suffixes: dict[str, int] = defaultdict(int)
        # Names that a module of a model imports: they count where some release defines them.
        self.imported: dict[str, int] = defaultdict(int)
        # (kind, target module, target name) -> name -> releases.
        self.plain: dict[tuple[str, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.sigs: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.classes: dict[str, ClassNames] = defaultdict(ClassNames)

    def add(self, data: dict[str, Any], bit: int) -> None:
        """Take what one release says."""
        self.exists |= bit
        if data["o"]:
            self.opened[data["o"]] |= bit
        if "is" in data:
            self.same[data["is"]] |= bit
        if data.get("f"):
            self.suffixes[data["f"]] |= bit
        for name in data.get("i", ()):
            self.imported[name] |= bit
        for name, row in data["n"].items():
            kind = row[0]
            if kind == "c":
                self.classes[name].add(row, bit)
                continue
            self.plain[tuple(row) if kind in "am" else (kind,)][name] |= bit
            if kind == "f" and row[1] is not None:
                self.sigs[name][_signature(row[1])] |= bit

    def finish(self, module: str) -> None:
        """Keep of the imported names those that some release defines; open what is made."""
        if module in _MADE:
            self.opened[2] |= self.exists
        defined = {name for found in self.plain.values() for name in found} | set(self.classes)
        for name, bits in self.imported.items():
            if name in defined:
                self.plain[("x",)][name] |= bits


class ClassNames:
    """What the releases say of one class."""

    def __init__(self) -> None:
        self.exists = 0
        self.bases: dict[tuple[str, ...], int] = defaultdict(int)
        self.members: dict[tuple[str, str], int] = defaultdict(int)
        self.dynamic = 0
        self.opened = 0
        self.stub = 0
        self.sigs: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.constructors: dict[str, int] = defaultdict(int)

    def add(self, row: list[Any], bit: int) -> None:
        """Take what one release says."""
        _, bases, data = row
        self.exists |= bit
        self.bases[tuple(bases)] |= bit
        if data is None:
            self.opened |= bit
            return
        for name, kind in data["m"].items():
            self.members[kind, name] |= bit
        for name in data["i"]:
            self.members["i", name] |= bit
        self.dynamic |= bit if data["d"] else 0
        self.opened |= bit if data["o"] else 0
        self.stub |= bit if data["u"] else 0
        for name, sig in data["s"].items():
            self.sigs[name][_signature(sig)] |= bit
        if data["k"] is not None:
            self.constructors[data["k"]] |= bit


def _signature(row: list[Any]) -> tuple[str, int, tuple[tuple[str, str], ...]]:
    return row[0], row[1], tuple(sorted(row[2].items()))
