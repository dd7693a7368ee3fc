"""Writes the surface of a library: sorted lines in compressed blocks, with an index.

The file: ``DSLS1``, the length of the index (four bytes), the index, the blocks, each compressed by zlib. A line is
``module TAB first name TAB JSON``; the names of a module that has many take several lines, in order of the names.
docs: schemas/surface/README.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter, defaultdict
from typing import Any

from surface.merge import ClassNames, Names
from surface.moved import moved

MAGIC = b"DSLS1"
_BLOCK = 64_000
_LINE = 12_000


class Packer:
    """Turns sets of releases into short codes: the place in a table, the most frequent first."""

    def __init__(self, library: str, releases: list[str], modules: dict[str, Names]) -> None:
        self.library = library
        self.releases = releases
        self.modules = modules
        self.moved = moved(modules, 1 << (len(releases) - 1))
        counts: Counter[int] = Counter()
        for names in modules.values():
            _count(names, counts)
        self.sets = [releases_ for releases_, _ in counts.most_common()]
        self.code = {each: str(place) for place, each in enumerate(self.sets)}

    def lines(self) -> list[tuple[str, str, str]]:
        """All lines: module, first name, JSON."""
        found: list[tuple[str, str, str]] = []
        for module, names in sorted(self.modules.items()):
            head: dict[str, Any] = {"b": self.code[names.exists]}
            if names.opened:
                head["o"] = {str(level): self.code[bits] for level, bits in names.opened.items()}
            if names.same:
                head["="] = {target: self.code[bits] for target, bits in names.same.items()}
            if names.suffixes:
                head["?"] = {suffix: self.code[bits] for suffix, bits in names.suffixes.items()}
            first, *more = self._parts(module, names) or [("", {})]
            found.append((module, "", _json({**head, **first[1]})))
            found += [(module, start, _json(data)) for start, data in more]
        return found

    def _parts(self, module: str, names: Names) -> list[tuple[str, dict[str, Any]]]:
        """The names of a module in pieces of about one length."""
        rows: dict[str, list[tuple[tuple[str, ...], int]]] = defaultdict(list)
        for key, found in names.plain.items():
            for name, bits in found.items():
                rows[name].append((key, bits))
        pieces: list[tuple[str, dict[str, Any]]] = []
        piece: list[str] = []
        size = 0
        for name in sorted({*rows, *names.classes}):
            cls = self._class(names.classes[name]) if name in names.classes else None
            sigs = self._sigs(names.sigs[name]) if name in names.sigs else None
            weight = len(name) + 8 + (len(_json(cls)) if cls else 0) + (len(_json(sigs)) if sigs else 0)
            if size + weight > _LINE and piece:
                pieces.append((piece[0], self._piece(module, piece, rows, names)))
                piece, size = [], 0
            piece.append(name)
            size += weight
        if piece:
            pieces.append((piece[0], self._piece(module, piece, rows, names)))
        return pieces

    def _piece(
        self, module: str, piece: list[str], rows: dict[str, list[tuple[tuple[str, ...], int]]], names: Names
    ) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name in piece:
            for key, bits in rows.get(name, ()):
                code = self.code[bits]
                kind = key[0]
                if kind == "a":
                    own = name if key[2] == name else f"{name}={key[2]}"
                    target = data.setdefault("a", {}).setdefault(key[1], {})
                    target[code] = f"{target[code]} {own}" if code in target else own
                elif kind == "m":
                    data.setdefault("m", {}).setdefault(key[1], {})[name] = code
                else:
                    found = data.setdefault(kind, {})
                    found[code] = f"{found[code]} {name}" if code in found else name
            if (module, name) in self.moved:
                data.setdefault(">", {})[name] = self.moved[module, name]
            if name in names.sigs:
                data.setdefault("s", {})[name] = self._sigs(names.sigs[name])
            if name in names.classes:
                data.setdefault("c", {})[name] = self._class(names.classes[name])
        return data

    def _class(self, cls: ClassNames) -> dict[str, Any]:
        data: dict[str, Any] = {"b": self.code[cls.exists]}
        data["p"] = [[self.code[bits], list(bases)] for bases, bits in cls.bases.items() if bases]
        members: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for (kind, name), bits in sorted(cls.members.items()):
            members[kind][self.code[bits]].append(name)
        for kind, found in members.items():
            data["m" + kind] = {code: " ".join(each) for code, each in found.items()}
        if cls.dynamic:
            data["d"] = self.code[cls.dynamic]
        if cls.opened:
            data["o"] = self.code[cls.opened]
        if cls.stub:
            data["u"] = self.code[cls.stub]
        if cls.sigs:
            data["s"] = {name: self._sigs(found) for name, found in sorted(cls.sigs.items())}
        if cls.constructors:
            data["k"] = [[self.code[bits], text] for text, bits in cls.constructors.items()]
        return data

    def _sigs(self, found: dict[Any, int]) -> list[list[Any]]:
        rows = []
        for (text, certain, old), bits in found.items():
            row: list[Any] = [self.code[bits], text]
            if not certain or old:
                row.append(certain)
            if old:
                row.append(dict(old))
            rows.append(row)
        return rows


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _count(names: Names, counts: Counter[int]) -> None:
    counts[names.exists] += 1
    counts.update(names.opened.values())
    counts.update(names.same.values())
    counts.update(names.suffixes.values())
    for found in names.plain.values():
        counts.update(found.values())
    for sigs in names.sigs.values():
        counts.update(sigs.values())
    for cls in names.classes.values():
        counts.update([cls.exists, *cls.bases.values(), *cls.members.values(), *cls.constructors.values()])
        counts.update([cls.dynamic, cls.opened, cls.stub])
        for sigs in cls.sigs.values():
            counts.update(sigs.values())


def write(path: str, packer: Packer, extra: dict[str, Any]) -> int:
    """Write the file; its size in bytes."""
    blocks: list[bytes] = []
    starts: list[str] = []
    lines: list[str] = []
    size = 0

    def finish() -> None:
        if lines:
            blocks.append(zlib.compress("\n".join(lines).encode(), 9))

    for module, first, data in packer.lines():
        line = f"{module}\t{first}\t{data}"
        if size + len(line) > _BLOCK and lines:
            finish()
            lines, size = [], 0
        if not lines:
            starts.append(f"{module}\t{first}")
        lines.append(line)
        size += len(line)
    finish()
    index = {
        "releases": packer.releases,
        "sets": [f"{each:x}" for each in packer.sets],
        "starts": starts,
        "lengths": [len(block) for block in blocks],
        **extra,
    }
    packed = zlib.compress(_json(index).encode(), 9)
    content = MAGIC + struct.pack(">I", len(packed)) + packed + b"".join(blocks)
    with open(path, "wb") as file:
        file.write(content)
    return len(content)
