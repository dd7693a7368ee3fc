"""Bytes and text of a file, or one sentence why not: bad input is never an exception."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from dslint.parse.limits import MAX_BYTES

# PEP 263: a comment on one of the first two lines, behind nothing but another comment.
_DECLARED = re.compile(rb"\A(?:[ \t\f]*(?:#[^\n]*)?\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file cannot be judged; ``reason`` is a phrase for the user."""

    reason: str


def read_bytes(path: str, limit: int = MAX_BYTES) -> bytes | Unreadable:
    """The content of a regular file of at most ``limit`` bytes. A pipe or device is never opened: it may block."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return Unreadable("it is not a regular file")
        if status.st_size > limit:
            return Unreadable(f"its {status.st_size / 1e6:.0f} MB are more than any config or script has")
        with open(path, "rb") as handle:
            return handle.read(limit + 1)
    except (OSError, ValueError) as error:
        return Unreadable(getattr(error, "strerror", None) or str(error))


def decode(raw: bytes) -> str | Unreadable:
    """UTF-8 text without its byte order mark, or text in the encoding that it declares; line ends stay as they are."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in raw[:8192]:
        return Unreadable("it is not UTF-8 but UTF-16")
    if b"\0" in raw[:8192]:
        return Unreadable("it is binary (it holds NUL bytes)")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        declared = _in_encoding(raw, declared_encoding(raw))
        if declared is not None:
            return declared
        line = raw.count(b"\n", 0, error.start) + 1
        return Unreadable(f"it is not UTF-8 (byte 0x{raw[error.start]:02x} in line {line})")
    return Unreadable("it is binary (it holds NUL bytes)") if "\0" in text else text


def declared_encoding(raw: bytes) -> str:
    """The encoding that a Python file declares (``# -*- coding: gbk -*-``), where it is not UTF-8; else empty."""
    try:
        raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        match = _DECLARED.match(raw[:4096])
        return match[1].decode("ascii") if match is not None else ""
    return ""


def _in_encoding(raw: bytes, encoding: str) -> str | None:
    try:
        return raw.decode(encoding) if encoding else None
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def read_text(path: str, limit: int = MAX_BYTES) -> str | Unreadable:
    """:func:`read_bytes` and :func:`decode` in one."""
    raw = read_bytes(path, limit)
    return raw if isinstance(raw, Unreadable) else decode(raw)
