"""Changed texts as a unified diff that ``git apply -p0`` and ``patch -p0`` take."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping

_BOM = b"\xef\xbb\xbf"
# What git writes between quotes: names with these would end the header or be read as escapes.
_ESCAPED = re.compile(r'[\x00-\x1f"\\\x7f\ud800-\udfff]')
_SHORT = {"\a": r"\a", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\v": r"\v", "\f": r"\f", "\r": r"\r",
          '"': r"\"", "\\": r"\\"}  # fmt: skip


def unified_diff(paths: Iterable[str], before: Mapping[str, str], after: Mapping[str, str], given: bytes = b"") -> str:
    """The changes of ``paths`` from the texts ``before`` to those ``after``.

    ``given`` is the beginning of a text on standard input, whose byte order mark no file on disk can tell.
    """
    out: list[str] = []
    named: set[str] = set()
    for path in paths:
        name = _name(path)
        if name in named:
            continue  # a link to a file that is here already
        named.add(name)
        # The texts hold no byte order mark, the file that the patch meets does.
        mark = "\ufeff" if (given or _head(path)).startswith(_BOM) else ""
        header = _quoted(name)
        for line in difflib.unified_diff(
            list(_lines(mark + before[path])), list(_lines(mark + after[path])), header, header
        ):
            out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


def _lines(text: str) -> Iterator[str]:
    """Lines as patch tools count them: only a line feed ends one."""
    *lines, last = text.split("\n")
    yield from (f"{line}\n" for line in lines)
    if last:
        yield last


def _name(path: str) -> str:
    """The file behind links, which patch tools refuse to follow, as seen from the working directory."""
    real = os.path.realpath(path)
    if real == os.path.abspath(path):
        return path
    here = os.path.realpath(os.curdir)
    return os.path.relpath(real, here).replace(os.sep, "/") if real.startswith(here + os.sep) else real


def _quoted(name: str) -> str:
    if _ESCAPED.search(name):
        return f'"{_ESCAPED.sub(_escape, name)}"'
    # A name ends at the first blank unless a tab says where.
    return f"{name}\t" if " " in name else name


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or "".join(f"\\{byte:03o}" for byte in os.fsencode(character))


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as handle:
            return handle.read(len(_BOM))
    except OSError:
        return b""
