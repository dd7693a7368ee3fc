"""What ``${name%pattern}``, ``${name/pattern/text}``, ``${name^^}`` and ``${name:offset:length}`` do to a text."""

from __future__ import annotations

import re
from collections.abc import Callable

from dslint.model.shell.globs import Matches, matcher, recased, replaced, without
from dslint.model.shell.pieces import UnknownWordError
from dslint.parse.shelllex import UnfinishedWordError, word_part_end

Transform = Callable[[str], str]
# A pattern or a text as stretches of it, each quoted or not; the value of an arithmetic expression.
Parts = Callable[[str], list[tuple[str, bool]]]
Number = Callable[[str], int]

_CUT = re.compile(r"(%%?|##?)(.*)", re.DOTALL)
_CASE = re.compile(r"(\^\^?|,,?)(.*)", re.DOTALL)


def transform(rest: str, parts: Parts, number: Number, quoted: bool) -> Transform:
    """The change that ``rest`` of ``${name<rest>}`` describes.

    Raises:
        UnknownWordError: it describes none that has one reading in every version and locale.
    """
    if rest.startswith(":"):
        return _substring(rest[1:], number)
    if rest.startswith("/"):
        return _replacement(rest, parts, quoted)
    found = _CUT.fullmatch(rest)
    if found is not None:
        op, matches = found[1], matcher(parts(found[2]))
        return lambda text: without(text, op, matches)
    found = _CASE.fullmatch(rest)
    if found is None:
        raise UnknownWordError
    case, letters = found[1], matcher(parts(found[2])) if found[2] else None
    return lambda text: recased(text, case, letters)


def _replacement(rest: str, parts: Parts, quoted: bool) -> Transform:
    op = rest[:2] if rest[1:2] in ("/", "#", "%") and len(rest) > 1 else "/"
    pattern, new = _divided(rest[len(op) :])
    if not pattern and op in ("/", "//"):
        raise UnknownWordError
    # Since bash 5.2 ``&`` may stand for what matched; quotes between quotes were kept once.
    new = new.replace("\\/", "/")
    if "\\" in new or (quoted and set(new) & set("'\"")):
        raise UnknownWordError
    text = "".join(part for part, _ in parts(new))
    if "&" in text or "\\" in text:
        raise UnknownWordError
    found = parts(pattern)
    is_empty = not any(part for part, _ in found)
    if is_empty and op in ("/#", "/%"):
        return lambda value: text + value if op == "/#" else value + text
    matches: Matches = matcher(found)
    if is_empty or (op in ("/", "//") and matches("") and not _is_star(found)):
        raise UnknownWordError
    if _is_star(found):
        # Whether ``*`` replaces an empty value differs.
        return lambda value: text if value else _refuse()
    return lambda value: replaced(value, op, matches, text)


def _is_star(found: list[tuple[str, bool]]) -> bool:
    return "".join(part for part, _ in found) == "*" and not any(quoted and part for part, quoted in found)


def _refuse() -> str:
    raise UnknownWordError


def _divided(text: str) -> tuple[str, str]:
    """``pattern/new`` at the first slash that is neither quoted nor inside an expansion."""
    at = 0
    try:
        while at < len(text) and text[at] != "/":
            at = word_part_end(text, at)
    except UnfinishedWordError:
        raise UnknownWordError from None
    return text[:at], text[at + 1 :]


def _substring(text: str, number: Number) -> Transform:
    """``:offset`` and ``:offset:length``; negative ones count from the end."""
    first, colon, second = text.partition(":")
    if set(text) & set("?{`") or (colon and not second.strip()) or not first.strip():
        raise UnknownWordError
    offset, length = number(first), number(second) if colon else None

    def cut(value: str) -> str:
        if not value.isascii():
            raise UnknownWordError
        begin = offset + len(value) if offset < 0 else offset
        if begin < 0 or begin > len(value):
            return ""
        end = len(value) if length is None else begin + length if length >= 0 else len(value) + length
        if end < begin:
            raise UnknownWordError
        return value[begin:end]

    return cut
