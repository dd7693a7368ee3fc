r"""The escapes of ``$'...'``, and where a quote ends in which a backslash escapes."""

from __future__ import annotations

import re

from dslint.model.shell.pieces import UnknownWordError

_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|(?P<char>.))", re.DOTALL)
_CHARS = {**dict(zip("abefnrtv", "\a\b\x1b\f\n\r\t\v", strict=True)), "E": "\x1b", **{c: c for c in "\\'\"?"}}


def closing_quote(raw: str, at: int, quote: str) -> int:
    """The offset of the quote that closes what begins at ``at``, where a backslash hides the next character.

    Raises:
        UnknownWordError: nothing closes it.
    """
    while at < len(raw) and raw[at] != quote:
        at += 2 if raw[at] == "\\" else 1
    if at >= len(raw):
        raise UnknownWordError
    return at


def ansi_text(body: str) -> str:
    """The text between the quotes.

    Raises:
        UnknownWordError: it holds a byte that no word can hold, or whose reading depends on the locale.
    """

    def decoded(match: re.Match[str]) -> str:
        if match["char"] is not None:
            # bash keeps the backslash of an escape that it does not know.
            if match["char"] in "ucUx":
                raise UnknownWordError
            return _CHARS.get(match["char"], match[0])
        code = int(match["octal"], 8) if match["octal"] else int(match["hex"], 16)
        if not 0 < code < 128:
            raise UnknownWordError
        return chr(code)

    return _ESCAPE.sub(decoded, body)
