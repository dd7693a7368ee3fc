"""Expansion of shell words as bash does it, as far as the values are known.

A word goes through parameter and arithmetic expansion, word splitting and quote removal. Whatever depends on the
file system, on running a command or on a variable that nobody sets makes the word unknown, never wrong.
"""

from __future__ import annotations

import re

from dslint.model.shell.fields import fields
from dslint.model.shell.parameters import dollar
from dslint.model.shell.pieces import Lookup, Piece, UnknownWordError
from dslint.model.shell.substitution import output_of
from dslint.parse.shelllex import UnfinishedWordError, closing_bracket, simple_command

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<index>\[[^]]*\])?(?P<append>\+?)=", re.ASCII)
_RUN = re.compile(r"""[^\\'"$`<>()|&;]+""")
_ESCAPED_IN_QUOTES = '$`"\\\n'
# Braces that bash turns into lists.
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\{.*\{.*[,.].*\}")


def expand(raw: str, lookup: Lookup) -> list[str]:
    """The words that bash makes of one word of a command.

    Raises:
        UnknownWordError: at least one of them is not known.
    """
    if _is_plain(raw):
        return [raw]
    return fields(_pieces(raw, lookup, top=True), lookup)


def expand_assignment(raw: str, lookup: Lookup) -> str:
    """The value that ``NAME=raw`` assigns: no splitting, no file names.

    Raises:
        UnknownWordError: the value is not known.
    """
    if _is_plain(raw):
        return raw
    pieces = _pieces(raw, lookup, top=False)
    return "".join(" ".join(p.items) if p.items is not None else p.text for p in pieces)


def expand_quoted(body: str, lookup: Lookup) -> str:
    """The text between double quotes, or the body of a heredoc with an unquoted delimiter.

    Raises:
        UnknownWordError: the text is not known.
    """
    pieces: list[Piece] = []
    at = _quoted(body, 0, lookup, pieces, end="")
    if at != len(body) or any(p.items is not None for p in pieces):
        raise UnknownWordError
    return "".join(p.text for p in pieces)


def _is_plain(raw: str) -> bool:
    return bool(raw) and not (set(raw) & set("\\'\"$`*?[]{}~<>()|&; \t\n"))


def _pieces(raw: str, lookup: Lookup, top: bool) -> list[Piece]:
    """Quote removal and expansion of a word; ``top`` for a word of a command, where braces are active."""
    pieces: list[Piece] = []
    bare: list[str] = []
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            if raw[at + 1 : at + 2] != "\n":
                pieces.append(Piece(raw[at + 1 : at + 2], True))
                bare.append(" ")
            at += 2
        elif char == "'":
            close = raw.find("'", at + 1)
            if close < 0:
                raise UnknownWordError
            pieces.append(Piece(raw[at + 1 : close], True))
            bare.append(" ")
            at = close + 1
        elif char == '"':
            pieces.append(Piece("", True))
            at = _quoted(raw, at + 1, lookup, pieces, end='"')
            bare.append(" ")
        elif char in "$`":
            at = _expansion(raw, at, lookup, pieces, quoted=False)
            bare.append(" ")
        elif char in "<>()|&;":
            raise UnknownWordError
        else:
            run = _RUN.match(raw, at)
            text = run[0] if run else char
            pieces.append(Piece(text, False))
            bare.append(text)
            at += len(text)
    outline = "".join(bare)
    if _tilde(outline) or (top and ("{" in outline and _BRACES.search(outline))):
        raise UnknownWordError
    return pieces


def _tilde(outline: str) -> bool:
    return outline.startswith("~") or "=~" in outline or ":~" in outline


def _quoted(raw: str, at: int, lookup: Lookup, pieces: list[Piece], end: str) -> int:
    """Read up to the closing quote; returns the offset after it."""
    text: list[str] = []
    while at < len(raw):
        char = raw[at]
        if char == end:
            pieces.append(Piece("".join(text), True))
            return at + 1
        if char == "\\" and raw[at + 1 : at + 2] and raw[at + 1] in _ESCAPED_IN_QUOTES:
            # In a heredoc a quotation mark keeps its backslash.
            if raw[at + 1] == '"' and not end:
                text.append("\\")
            text.append("" if raw[at + 1] == "\n" else raw[at + 1])
            at += 2
        elif char in "$`":
            pieces.append(Piece("".join(text), True))
            text = []
            at = _expansion(raw, at, lookup, pieces, quoted=True)
        else:
            text.append(char)
            at += 1
    if end:
        raise UnknownWordError
    pieces.append(Piece("".join(text), True))
    return at


def _expansion(raw: str, at: int, lookup: Lookup, pieces: list[Piece], quoted: bool) -> int:
    """One expansion that begins at ``$`` or a backquote; returns the offset after it."""
    if raw[at] == "`":
        close = raw.find("`", at + 1)
        if close < 0 or "\\" in raw[at:close]:
            raise UnknownWordError
        pieces.append(Piece(output_of(_commands(raw[at + 1 : close], lookup), lookup), quoted, not quoted))
        return close + 1
    if raw.startswith("$(", at) and not raw.startswith("$((", at):
        try:
            close = closing_bracket(raw, at + 1, ")") - 1
        except UnfinishedWordError:
            raise UnknownWordError from None
        pieces.append(Piece(output_of(_commands(raw[at + 2 : close], lookup), lookup), quoted, not quoted))
        return close + 1
    return dollar(raw, at, lookup, pieces, quoted, _default)


def _commands(body: str, lookup: Lookup) -> list[list[str]]:
    """The words of the commands in ``$( )``, joined by ``&&`` or ``;``.

    Raises:
        UnknownWordError: it is not a plain list of plain commands.
    """
    if lookup.script is None or not _is_readable(body):
        raise UnknownWordError
    found: list[list[str]] = []
    at = 0
    while at < len(body):
        try:
            command = simple_command(body, at)
        except UnfinishedWordError:
            raise UnknownWordError from None
        found.append([w for s in command.words for w in expand(body[s.start : s.end], lookup)])
        separator = re.compile(r"\s*(?:&&|;|$)").match(body, command.end)
        if separator is None:
            raise UnknownWordError
        at = separator.end()
    return found


def _is_readable(body: str) -> bool:
    """A cheap look before the work: the first word is a command whose output is known without running it."""
    return re.match(r"\s*(?:cd|pwd|dirname|basename|realpath|readlink)\b", body) is not None


def _default(word: str, lookup: Lookup, quoted: bool) -> list[Piece]:
    """The word of ``${name:-word}``."""
    if quoted:
        if set(word) & set("'\""):
            raise UnknownWordError
        return [Piece(expand_quoted(word, lookup), True)]
    return [
        Piece(p.text, p.quoted, not p.quoted, p.items) if p.items is None else p
        for p in _pieces(word, lookup, top=False)
    ]
