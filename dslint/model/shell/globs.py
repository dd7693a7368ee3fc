"""Patterns of ``${name%pattern}``, ``${name/pattern/text}`` and ``${name^^pattern}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dslint.model.shell.pieces import UnknownWordError

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r" \t\n\r\f\v",
    "blank": r" \t",
    "xdigit": "0-9a-fA-F",
}
_MEMBER = re.compile(r"\[:(?P<name>\w+):\]|(?P<range>0-9|a-z|A-Z)|(?P<char>[^\\\]\[-]|-(?=\])|^-)")
# Trying every stretch of a text costs its length squared.
_MAX_LENGTH = 2_000

Matches = Callable[[str], bool]


def matcher(parts: Iterable[tuple[str, bool]]) -> Matches:
    """A test for texts that match as a whole; ``parts`` are stretches of the pattern, each quoted or not.

    Raises:
        UnknownWordError: the pattern has parts that depend on options of the shell.
    """
    regex: list[str] = []
    is_simple = True
    for text, quoted in parts:
        if quoted:
            regex.append(re.escape(text))
            continue
        at = 0
        while at < len(text):
            char = text[at]
            if char in "(\\":  # extglob, an escape that came out of a variable
                raise UnknownWordError
            if char == "[":
                found, at = _bracket(text, at)
                regex.append(found)
            else:
                regex.append({"*": ".*", "?": "."}.get(char) or re.escape(char))
                at += 1
            is_simple = is_simple and char not in "?["
    compiled = re.compile("".join(regex), re.DOTALL)

    def test(text: str) -> bool:
        # How long a character is depends on the locale.
        if len(text) > _MAX_LENGTH or not (is_simple or text.isascii()):
            raise UnknownWordError
        return compiled.fullmatch(text) is not None

    return test


def _bracket(text: str, at: int) -> tuple[str, int]:
    """``[a-z_]`` as a regular expression, and the offset after it."""
    start = at + 1
    negated = text[start : start + 1] in ("!", "^")
    at = start + negated
    members: list[str] = []
    while at < len(text) and text[at] != "]":
        member = _MEMBER.match(text, at)
        if member is None or (member["name"] and member["name"] not in _CLASSES):
            raise UnknownWordError
        members.append(
            _CLASSES[member["name"]] if member["name"] else member["range"] or re.escape(member["char"] or "-")
        )
        at = member.end()
    # Whether ``[a-z]`` holds capitals depends on the locale.
    if at >= len(text) or not members or ("a-z" in members) != ("A-Z" in members):
        raise UnknownWordError
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1


def without(text: str, op: str, matches: Matches) -> str:
    """The text without its shortest (``%``, ``#``) or longest (``%%``, ``##``) end or begin that matches."""
    sizes = range(len(text) + 1) if len(op) == 1 else range(len(text), -1, -1)
    for size in sizes:
        part = text[len(text) - size :] if op[0] == "%" else text[:size]
        if matches(part):
            return text[: len(text) - size] if op[0] == "%" else text[size:]
    return text


def replaced(text: str, op: str, matches: Matches, new: str) -> str:
    """The text with its first (``/``), every (``//``), leading (``/#``) or trailing (``/%``) match replaced."""
    if op == "/#":
        size = next((n for n in range(len(text), -1, -1) if matches(text[:n])), None)
        return text if size is None else new + text[size:]
    if op == "/%":
        begin = next((n for n in range(len(text) + 1) if matches(text[n:])), None)
        return text if begin is None else text[:begin] + new
    out: list[str] = []
    at = 0
    while at < len(text):
        end = next((n for n in range(len(text), at, -1) if matches(text[at:n])), None)
        if end is None:
            out.append(text[at])
            at += 1
            continue
        out.append(new)
        at = end
        if op == "/":
            break
    return "".join(out) + text[at:]


def recased(text: str, op: str, matches: Matches | None) -> str:
    """``${name^}``, ``${name^^}``, ``${name,}``, ``${name,,}``, for the characters that match."""
    if not text.isascii():
        raise UnknownWordError
    change = str.upper if op[0] == "^" else str.lower
    count = len(text) if len(op) == 2 else 1
    head = "".join(change(c) if matches is None or matches(c) else c for c in text[:count])
    return head + text[count:]
