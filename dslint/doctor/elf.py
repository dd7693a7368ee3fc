"""Whether a shared library is whole: its header, program headers and section table must lie inside the file.

Layout: elf(5). Both classes and byte orders are read.
"""

from __future__ import annotations

import struct
from pathlib import Path

_MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "riscv64": 243, "s390x": 22}
_SHARED_OBJECT = 3
_LOADED = 1


def damage(path: Path, machine: str = "") -> str:
    """What is wrong with a library, empty when nothing is. ``machine`` is the kind of this one (``uname -m``).

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        start = stream.read(64)
        size = path.stat().st_size
        if size == 0:
            return "it is empty"
        if start[:4] != b"\x7fELF":
            return "it is no ELF file"
        if len(start) < 16 or start[4] not in (1, 2) or start[5] not in (1, 2):
            return "its ELF header is cut off or broken"
        order = "<" if start[5] == 1 else ">"
        wide = start[4] == 2
        layout = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
        if len(start) < 16 + layout.size:
            return "its ELF header is cut off"
        fields = layout.unpack_from(start, 16)
        kind, target, ph_offset, sh_offset = fields[0], fields[1], fields[4], fields[5]
        ph_size, ph_count, sh_size, sh_count = fields[8:12]
        if kind != _SHARED_OBJECT:
            return "it is no shared library"
        if machine in _MACHINES and target != _MACHINES[machine]:
            return f"it was built for another kind of processor than this {machine}"
        end = max(ph_offset + ph_size * ph_count, sh_offset + sh_size * sh_count)
        if ph_size < (56 if wide else 32):
            return "its ELF header is broken"
        if end <= size:
            stream.seek(ph_offset)
            end = max(end, _end_of_segments(stream.read(ph_size * ph_count), ph_size, order, wide))
    return f"it is cut off: {size} bytes of at least {end}" if end > size else ""


def _end_of_segments(table: bytes, entry: int, order: str, wide: bool) -> int:
    end = 0
    for start in range(0, len(table) - entry + 1, entry):
        if wide:
            kind, _flags, offset, _virtual, _physical, length = struct.unpack_from(order + "IIQQQQ", table, start)
        else:
            kind, offset, _virtual, _physical, length = struct.unpack_from(order + "IIIII", table, start)
        if kind == _LOADED:
            end = max(end, offset + length)
    return end
