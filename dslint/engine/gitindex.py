"""Which files git tracks: a tracked file is never ignored, whatever ``.gitignore`` says.

The index is read as a file, since running ``git`` inside a foreign checkout can run what its config names.
Format: https://git-scm.com/docs/index-format (versions 2 to 4).
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

_ENTRY = 62  # bytes before the name of an entry: times, device, inode, mode, owner, size, object id, flags
_EXTENDED = 0x4000


@lru_cache(maxsize=4096)
def repository(folder: str) -> str | None:
    """The root of the git checkout around a folder, if any."""
    if os.path.exists(os.path.join(folder, ".git")):
        return folder
    parent = os.path.dirname(folder)
    return None if parent == folder else repository(parent)


@lru_cache(maxsize=8)
def tracked(root: str) -> frozenset[str]:
    """Absolute paths of all tracked files and of the folders that hold one; empty when the index cannot be read."""
    try:
        with open(os.path.join(git_folder(root), "index"), "rb") as handle:
            names = _names(handle.read())
    except (OSError, ValueError, struct.error, IndexError):
        return frozenset()
    found: set[str] = set()
    for name in names:
        path = os.path.join(root, name)
        while path not in found and path != root:
            found.add(path)
            path = os.path.dirname(path)
    return frozenset(found)


def git_folder(root: str) -> str:
    """``.git``, or what the ``.git`` file of a worktree or submodule points to."""
    place = os.path.join(root, ".git")
    if not os.path.isfile(place):
        return place
    try:
        with open(place, encoding="utf-8", errors="surrogateescape") as handle:
            return os.path.join(root, handle.read().removeprefix("gitdir:").strip())
    except OSError:
        return place


def _names(data: bytes) -> list[str]:
    signature, version, count = struct.unpack(">4sII", data[:12])
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index of a known version")
    names: list[bytes] = []
    at = 12
    for _ in range(count):
        start = at
        flags = struct.unpack(">H", data[at + _ENTRY - 2 : at + _ENTRY])[0]
        at += _ENTRY + (2 if flags & _EXTENDED else 0)
        kept = b""
        if version == 4:
            strip, at = _offset(data, at)
            kept = names[-1][: len(names[-1]) - strip] if names else b""
        end = data.index(b"\0", at)
        names.append(kept + data[at:end])
        # Entries before version 4 are padded with NULs to a multiple of eight.
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
    return [os.fsdecode(name) for name in names]


def _offset(data: bytes, at: int) -> tuple[int, int]:
    """The variable-width number of version 4, and the place behind it."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1
