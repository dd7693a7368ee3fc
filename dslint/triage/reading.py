"""Opens logs: files, gzip files, folders of them, standard input."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

STANDARD_INPUT = "-"
_SUFFIXES = (".log", ".out", ".err", ".txt", ".gz")
_NAMES = frozenset(("stdout", "stderr"))
_MEANT = "*.log, *.out, *.err, *.txt, *.gz, stdout, stderr"
_MAX_FILES = 4096


class UnreadableLog(OSError):  # noqa: N818 - the name says the mistake
    """A log that cannot be read, as one line."""


def logs(paths: list[str]) -> list[str]:
    """The files that the arguments mean, each once; folders are walked.

    Raises:
        UnreadableLog: a path does not exist, or a folder holds no log.
    """
    found: list[str] = []
    for path in paths:
        if path != STANDARD_INPUT and os.path.isdir(path):
            inside = sorted(_walk(path))[:_MAX_FILES]
            if not inside:
                raise UnreadableLog(f"{path}: no logs in this folder ({_MEANT})")
            found += inside
        elif path != STANDARD_INPUT and not os.path.exists(path):
            raise UnreadableLog(f"{path}: no such file")
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _walk(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if name.lower().endswith(_SUFFIXES) or name in _NAMES:
                yield os.path.join(root, name)


def open_log(path: str) -> BinaryIO:
    """A log as bytes, unpacked when it begins like a gzip file.

    Raises:
        OSError: it cannot be opened.
    """
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise UnreadableLog("standard input is closed")
        raw: BinaryIO = io.BufferedReader(_Raw(sys.stdin.buffer), 1 << 16)
    else:
        raw = open(path, "rb")  # noqa: SIM115 - the caller closes it
    head = raw.peek(2)[:2] if isinstance(raw, io.BufferedReader) else b""
    return gzip.GzipFile(fileobj=raw) if head == b"\x1f\x8b" else raw  # type: ignore[return-value]


class _Raw(io.RawIOBase):
    """Standard input without its closing: the process still owns it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
