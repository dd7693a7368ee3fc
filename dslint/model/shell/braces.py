"""Brace expansion: ``{a,b}`` and ``{1..4}``, done on the text before anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from dslint.model.shell.pieces import UnknownWordError
from dslint.parse.shelllex import UnfinishedWordError, word_part_end

_SEQUENCE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([a-z])\.\.([a-z])|([A-Z])\.\.([A-Z])", re.ASCII)
# The bracket of ``${`` makes no words.
_BARE = re.compile(r"(?<!\$)\{")
_MOST = 500


def brace_expanded(raw: str) -> list[str]:
    """The words that the braces make of a raw word, quotes and ``$`` still in them.

    Raises:
        UnknownWordError: the braces are not balanced, or make too many words.
    """
    if "{" not in raw or ("\\" not in raw and not _BARE.search(raw)):
        return [raw]
    found = list(_expanded(raw))
    if len(found) > _MOST:
        raise UnknownWordError
    return found


def _expanded(raw: str) -> Iterator[str]:
    at = 0
    while at < len(raw):
        if raw[at] != "{":
            at = _after(raw, at)
            continue
        close, commas = _closing(raw, at)
        body = raw[at + 1 : close]
        parts = _parts(raw, at + 1, close, commas) if commas else _sequence(body)
        if parts is None:
            at += 1
            continue
        head = raw[:at]
        tails = list(_expanded(raw[close + 1 :]))
        total = 0
        for part in parts:
            for middle in _expanded(part) if commas else (part,):
                for tail in tails:
                    total += 1
                    if total > _MOST:
                        raise UnknownWordError
                    yield head + middle + tail
        return
    yield raw


def _closing(raw: str, at: int) -> tuple[int, list[int]]:
    """The offset of the bracket that closes the one at ``at``, and those of the commas between them."""
    depth = 0
    commas: list[int] = []
    while at < len(raw):
        char = raw[at]
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if not depth:
                return at, commas
        elif char == "," and depth == 1:
            commas.append(at)
        at = at + 1 if char in "{}" else _after(raw, at)
    raise UnknownWordError  # bash has rules of its own for these


def _after(raw: str, at: int) -> int:
    """The offset after a character, an escape, a quoted stretch or an expansion."""
    try:
        return word_part_end(raw, at)
    except UnfinishedWordError:
        raise UnknownWordError from None


def _parts(raw: str, start: int, end: int, commas: list[int]) -> list[str]:
    edges = [start - 1, *commas, end]
    return [raw[a + 1 : b] for a, b in pairwise(edges)]


def _sequence(body: str) -> list[str] | None:
    match = _SEQUENCE.fullmatch(body)
    if match is None:
        return None
    if match[1] is None:
        first, last = (match[4], match[5]) if match[4] else (match[6], match[7])
        step = 1 if first <= last else -1
        return [chr(code) for code in range(ord(first), ord(last) + step, step)]
    begin, end = int(match[1]), int(match[2])
    size = abs(int(match[3] or 1)) or 1
    if abs(end - begin) // size > _MOST:
        raise UnknownWordError
    texts = (match[1], match[2])
    padded = any(re.match(r"-?0\d", text) for text in texts)
    width = max(map(len, texts)) if padded else 0
    step = size if begin <= end else -size
    return [f"{n:0{width}d}" if padded else str(n) for n in range(begin, end + (1 if step > 0 else -1), step)]
