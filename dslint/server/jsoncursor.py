"""Where a cursor stands in JSON that is being written, and so is none yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.source import Span
from dslint.parse.data import join_pointer

_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"?')
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")


@dataclass
class _Open:
    """An object or list around the cursor: its pointer, and the key that waits for its value."""

    bracket: str
    pointer: str
    key: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Cursor:
    """The place: a key or a value. ``section`` is the pointer of the object around it, ``key`` that of the value.

    ``token`` is what is replaced: the string or word under the cursor, or nothing. ``is_followed``: a colon comes next.
    """

    is_key: bool
    section: str
    key: str | None
    token: Span
    is_followed: bool = False


def cursor_at(text: str, offset: int) -> Cursor | None:
    """The place of an offset; ``None`` in comments and lists, and outside of the document."""
    stack: list[_Open] = []
    at, last = 0, ""
    while at < offset:
        character = text[at]
        comment = _COMMENT.match(text, at)
        if comment is not None:
            if comment.end() > offset or (comment.end() == offset and not comment[0].endswith("*/")):
                return None
            at = comment.end()
            continue
        token = _STRING.match(text, at) or (_WORD.match(text, at) if character not in "{}[],:" else None)
        if token is not None:
            is_closed = token[0].startswith('"') and len(token[0]) > 1 and token[0].endswith('"')
            if token.end() > offset or (token.end() == offset and not is_closed):
                return _place(stack, text, Span(token.start(), token.end()), last)
            if stack and stack[-1].bracket == "{" and stack[-1].key is None:
                stack[-1].key = token[0].strip('"')
            at, last = token.end(), token[0][-1]
            continue
        _step(stack, character)
        at, last = at + 1, last if character.isspace() else character
    return _place(stack, text, Span(offset, offset), last)


def _step(stack: list[_Open], character: str) -> None:
    if character in "{[":
        pointer = ""
        if stack:
            around = stack[-1]
            pointer = join_pointer(around.pointer, around.key or "" if around.bracket == "{" else around.count)
        stack.append(_Open(character, pointer))
    elif character in "}]" and stack:
        stack.pop()
    elif character == "," and stack:
        stack[-1].key = None
        stack[-1].count += 1


def _place(stack: list[_Open], text: str, token: Span, before: str) -> Cursor | None:
    """The place of a token that follows the character ``before``."""
    if not stack or stack[-1].bracket != "{":
        return None
    around = stack[-1]
    if around.key is None:
        # Behind a value without a comma nothing can come that makes sense.
        is_followed = text[token.end :].lstrip().startswith(":")
        return Cursor(True, around.pointer, None, token, is_followed) if before in ("{", ",") else None
    if before != ":":
        return None
    return Cursor(False, around.pointer, around.key, token)
