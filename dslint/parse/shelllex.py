"""The words of one simple command, as bash divides its text: quotes, continuations, redirections.

The syntax tree says where a command begins; its grammar loses words at escaped blanks and hangs words on
redirections, so the division into words is done here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dslint.core.source import Span

# ``<path to model>`` stands for a value in documentation; bash would read two redirections.
PLACEHOLDER = re.compile(
    r"""(?<![<>&\d(])<(?:(?=[^\W\d])[^<>\n"'`$|;&]*[^\s<>"'`$|;&](?<!\s\d)|\d+(?:[ ]or[ ]\d+)+)>(?!>)"""
)
# Behind a backslash at the end of a file bash reads nothing more.
_BLANK = re.compile(r"(?:[ \t]|\\\r?\n|\\\Z|\r(?=\n))+")
# What they begin with; and what ends a simple command, also the end of the text.
_BLANKS = frozenset(" \t\\\r")
_ENDS = frozenset(("", *"\n;|)#"))
_REDIRECTING = frozenset("<>&{0123456789")
_REDIRECT = re.compile(r"(?:\d+|\{[A-Za-z_]\w*\})?(?:<<<|<<-?|<>|<&|>&|>>|>\||<|>)(?!\()|&>>?")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$", re.ASCII)
_IN_DOUBLE = re.compile(r"""[^"\\$`]*""")
# The blanks of bash only: one that does not break (U+00A0) is a letter to it.
_PLAIN = re.compile(r"""[^\s\\'"$`<>()|&;]+""", re.ASCII)
# Nearly every word of a command, up to a blank or an operator: plain characters, quotes and names of variables in any
# order. Everything else is read part by part below.
_NAMED = r"""\$\{[^{}"'`\\$]*\}"""
_USUAL = re.compile(
    rf"""(?:[ \t]|\\\r?\n)*(?![\s#;|&)]|\Z)([^\s\\'"$`<>()|&;]*(?:(?:'[^']*'|\$(?![({{\['])|{_NAMED}"""
    rf"""|"[^"\\`$]*(?:(?:\$(?![({{])|{_NAMED})[^"\\`$]*)*")[^\s\\'"$`<>()|&;]*)*)(?=[ \t\n;|&)]|\Z)""",
    re.ASCII,
)


class UnfinishedWordError(Exception):
    """A quote or bracket is not closed."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Where the words of a command stand in the text, and where it ends."""

    words: tuple[Span, ...]
    end: int


@dataclass(frozen=True, slots=True)
class CommandText:
    """A simple command: its words as written with their places, and where it ends.

    The first ``prefix`` of them are assignments.
    """

    words: tuple[tuple[str, Span], ...]
    prefix: int
    end: int


def simple_command(text: str, at: int) -> SimpleCommand:
    """The words of the simple command that begins at ``at``, without redirections.

    Raises:
        UnfinishedWordError: a quote or bracket is not closed.
    """
    words: list[Span] = []
    while True:
        usual = _USUAL.match(text, at)
        if usual:
            words.append(Span(usual.start(1), usual.end(1)))
            at = usual.end()
            continue
        if text[at : at + 1] in _BLANKS:
            blank = _BLANK.match(text, at)
            at = blank.end() if blank else at
        char = text[at : at + 1]
        if char in _ENDS or (char == "&" and not text.startswith("&>", at)):
            return SimpleCommand(tuple(words), at)
        redirect = None
        if char in _REDIRECTING and not PLACEHOLDER.match(text, at):
            redirect = _REDIRECT.match(text, at)
        if redirect:
            blank = _BLANK.match(text, redirect.end())
            at = word_end(text, blank.end() if blank else redirect.end())
            continue
        end = word_end(text, at)
        if end == at:  # ``(`` of something that is no simple command
            return SimpleCommand(tuple(words), at)
        words.append(Span(at, end))
        at = end


def array_items(text: str, start: int, end: int) -> list[Span]:
    """The elements of ``(a b c)``, given the range between the brackets; they may stand on several lines."""
    items: list[Span] = []
    at = start
    while at < end:
        if text[at] in " \t\r\n":
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif text[at] == "#":
            line = text.find("\n", at)
            at = end if line < 0 else line
        else:
            stop = word_end(text, at)
            if stop == at:
                raise UnfinishedWordError
            items.append(Span(at, stop))
            at = stop
    return items


def word_part_end(text: str, at: int) -> int:
    """The offset after the character at ``at``, or after the escape, quotation or expansion that begins there.

    Raises:
        UnfinishedWordError: a quote or bracket is not closed.
    """
    if text[at] == "\\":
        return min(at + 2, len(text))
    return min(_QUOTES[text[at]](text, at), len(text)) if text[at] in _QUOTES else at + 1


def word_end(text: str, at: int) -> int:
    """The offset after the word that begins at ``at``; ``at`` itself when none begins there.

    Raises:
        UnfinishedWordError: a quote or bracket is not closed.
    """
    start = at
    while at < len(text):
        char = text[at]
        # The line ends of Windows are read as git checks them out elsewhere.
        if char in " \t\n;|&)\r" or (char == "\\" and text.startswith("\r\n", at + 1)):
            break
        plain = _PLAIN.match(text, at)
        if plain:
            at = plain.end()
        elif char == "\\":
            at += 2
        elif char in _QUOTES:
            at = _QUOTES[char](text, at)
        elif char == "(":
            if not _ARRAY.fullmatch(text[start:at]):
                break
            at = closing_bracket(text, at, ")")
        else:  # ``<`` or ``>``
            placeholder = PLACEHOLDER.match(text, at)
            if placeholder:
                at = placeholder.end()
            elif text.startswith("(", at + 1):
                at = closing_bracket(text, at + 1, ")")
            else:
                break
    return min(at, len(text))


def _single(text: str, at: int) -> int:
    close = text.find("'", at + 1)
    if close < 0:
        raise UnfinishedWordError
    return close + 1


def _double(text: str, at: int) -> int:
    at += 1
    while at < len(text):
        at = _IN_DOUBLE.match(text, at).end()  # type: ignore[union-attr]  # it may be empty
        char = text[at : at + 1]
        if char == '"':
            return at + 1
        if char == "\\":
            at += 2
        elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
            at = _dollar(text, at)
        elif char == "`":
            at = _backquoted(text, at)
        else:
            at += 1
    raise UnfinishedWordError


def _backquoted(text: str, at: int) -> int:
    at += 1
    while at < len(text):
        if text[at] == "`":
            return at + 1
        at += 2 if text[at] == "\\" else 1
    raise UnfinishedWordError


def _dollar(text: str, at: int) -> int:
    following = text[at + 1 : at + 2]
    if following == "(":
        return closing_bracket(text, at + 1, ")")
    if following == "{":
        return closing_bracket(text, at + 1, "}")
    if following == "[":
        return closing_bracket(text, at + 1, "]")
    if following == "'":
        at += 2
        while at < len(text) and text[at] != "'":
            at += 2 if text[at] == "\\" else 1
        return at + 1
    return at + 1


def closing_bracket(text: str, at: int, closing: str) -> int:
    """The offset after the bracket that closes the one at ``at``.

    Raises:
        UnfinishedWordError: it is not closed.
    """
    # Thousands of brackets in each other are no script; the calls nest as deep as they do.
    try:
        return _matching(text, at, closing)
    except RecursionError:
        raise UnfinishedWordError from None


def _matching(text: str, at: int, closing: str) -> int:
    opening = text[at]
    depth = 0
    while at < len(text):
        char = text[at]
        if char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if not depth:
                return at + 1
        elif char == "\\":
            at += 1
        elif char in _QUOTES and (char != "$" or text[at + 1 : at + 2] in ("(", "{")):
            at = _QUOTES[char](text, at)
            continue
        elif char == "#" and text[at - 1] in " \t\n" and closing == ")":
            line = text.find("\n", at)
            at = len(text) if line < 0 else line
            continue
        at += 1
    raise UnfinishedWordError


_QUOTES: dict[str, Callable[[str, int], int]] = {"'": _single, '"': _double, "`": _backquoted, "$": _dollar}
