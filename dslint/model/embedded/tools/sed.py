"""``sed 's/BATCH/8/' template.json > ds.json``: what a stream of simple substitutions makes of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.core.source import Location
from dslint.model.embedded.shelltext import MARK, Change, Written

# Characters that mean something to both kinds of expressions, and the same to Python.
_SAME = frozenset(".*[]^$")
_EXTENDED = frozenset("+?(){}|")
_BRACKET = re.compile(r"\[\^?\]?[^\]]*\]")
_CLASSES = {"[:space:]": " \t", "[:digit:]": "0-9", "[:alpha:]": "A-Za-z", "[:alnum:]": "A-Za-z0-9"}


@dataclass(frozen=True, slots=True)
class Substitution:
    """One ``s/pattern/text/g``. ``text`` is what Python's ``expand`` takes."""

    pattern: re.Pattern[str]
    text: str
    is_global: bool


def substitutions(script: str, *, extended: bool) -> list[Substitution] | None:
    """Return the substitutions of an expression; ``None`` where it does anything else."""
    found: list[Substitution] = []
    at = 0
    while True:
        at += len(script[at:]) - len(script[at:].lstrip(" \t\n;"))
        if at >= len(script):
            return found
        if script[at] != "s" or at + 1 >= len(script):
            return None
        parts, at = _parts(script, at + 1)
        flags = re.match(r"[gI]*(?=[ \t\n;]|\Z)", script[at:])
        pattern = _pattern(parts[0], extended, "I" in flags[0]) if flags and len(parts) == 2 else None
        if flags is None or pattern is None:
            return None
        found.append(Substitution(pattern, _replacement(parts[1]), "g" in flags[0]))
        at += flags.end()


def substituted(text: Written, steps: Sequence[Substitution], place: Location) -> Written:
    """Return a text after each substitution on each of its lines; ``place`` is that of the expression."""
    for step in steps:
        text = text.changed(_changes(text.text, step, place))
    return text


def _changes(text: str, step: Substitution, place: Location) -> Iterator[Change]:
    start = 0
    for line in text.splitlines(keepends=True):
        content = line.rstrip("\n")
        for count, match in enumerate(step.pattern.finditer(content)):
            if count and not step.is_global:
                break
            yield Change(start + match.start(), start + match.end(), match.expand(step.text), place)
        start += len(line)


def _parts(script: str, at: int) -> tuple[list[str], int]:
    """Return pattern and text between the delimiters, and where the flags begin."""
    delimiter, at = script[at], at + 1
    parts: list[str] = []
    current = ""
    while at < len(script) and len(parts) < 2:
        char = script[at]
        if char == "\\" and at + 1 < len(script):
            following = script[at + 1]
            current += following if following == delimiter else char + following
            at += 2
            continue
        if char == delimiter:
            parts.append(current)
            current = ""
        else:
            current += char
        at += 1
    return parts, at


def _pattern(text: str, extended: bool, ignores_case: bool) -> re.Pattern[str] | None:
    """Return the same expression for Python."""
    if MARK in text:
        return None
    for name, characters in _CLASSES.items():
        text = text.replace(name, characters)
    if "[:" in text:
        return None
    out, at = "", 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        if char == "\\" and following:
            is_operator = following in _EXTENDED and not extended
            out += following if is_operator else f"\\{following}"
            at += 2
            continue
        if (bracket := _BRACKET.match(text, at)) is not None:
            out += bracket[0].replace("\\", "\\\\")
            at = bracket.end()
            continue
        is_plain = char in _EXTENDED and not extended
        out += f"\\{char}" if is_plain else char if char in _SAME or char in _EXTENDED else re.escape(char)
        at += 1
    try:
        return re.compile(out, re.IGNORECASE if ignores_case else 0)
    except re.error:
        return None


def _replacement(text: str) -> str:
    """Return the text as Python's ``expand`` wants it: ``&`` is the match, ``\\1`` a group."""
    out, at = "", 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        if char == "\\" and following:
            out += f"\\g<{following}>" if following.isdigit() else "\n" if following == "n" else _plain(following)
            at += 2
            continue
        out += r"\g<0>" if char == "&" else _plain(char)
        at += 1
    return out


def _plain(char: str) -> str:
    return "\\\\" if char == "\\" else char
