"""Expansion of shell words as bash does it, as far as the values are known.

A word goes through parameter and arithmetic expansion, word splitting and quote removal. Whatever depends on the
file system, on running a command or on a variable that nobody sets makes the word unknown, never wrong.
"""

from __future__ import annotations

import re

from dslint.model.shell.ansi import closing_quote
from dslint.model.shell.braces import brace_expanded
from dslint.model.shell.fields import fields
from dslint.model.shell.parameters import Words, dollar
from dslint.model.shell.pieces import Lookup, Piece, UnknownWordError
from dslint.model.shell.substitution import output_of
from dslint.parse.shelllex import UnfinishedWordError, closing_bracket

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<index>\[[^]]*\])?(?P<append>\+?)=", re.ASCII)
_RUN = re.compile(r"""[^\\'"$`<>()|&;]+""")
_PLAIN = re.compile(r"""[^\\'"$`*?\[\]{}~<>()|&; \t\n]+""")
_FIXED = re.compile(r"""'[^']*'|"[^"\\$`]*\"""")
_TEXT = re.compile(r"""[^"\\$`]+""")
# ``~`` or ``~/...`` and nothing like it behind: the home directory of the user who runs this.
_HOME = re.compile(r"~(?:/[^~]*)?")
_ESCAPED_IN_QUOTES = '$`"\\\n'


def expand(raw: str, lookup: Lookup) -> list[str]:
    """The words that bash makes of one word of a command.

    Raises:
        UnknownWordError: at least one of them is not known.
    """
    text = fixed_text(raw)
    if text is not None:
        return [text]
    found = [fields(_pieces(part, lookup, top=True), lookup) for part in brace_expanded(raw)]
    if len(found) > 1:
        lookup.places = ()
    return [text for texts in found for text in texts]


def expand_assignment(raw: str, lookup: Lookup) -> str:
    """The value that ``NAME=raw`` assigns: no splitting, no file names.

    Raises:
        UnknownWordError: the value is not known.
    """
    text = fixed_text(raw)
    if text is not None:
        return text
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


def is_plain(raw: str) -> bool:
    """Nothing in the word means anything to bash: it is its own text."""
    return _PLAIN.fullmatch(raw) is not None


def fixed_text(raw: str) -> str | None:
    """The text of a word that is plain, or stands in quotes with nothing to expand; ``None`` for any other word."""
    if _PLAIN.fullmatch(raw) is not None:
        return raw
    return raw[1:-1] if _FIXED.fullmatch(raw) is not None else None


def _pieces(raw: str, lookup: Lookup, top: bool, inner: bool = False) -> list[Piece]:
    """Quote removal and expansion of a word; ``top`` for a word of a command, not the value of an assignment.

    ``inner``: it stands inside ``${ }``, where operators are plain characters.
    """
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
        elif char in "<>()|&;" and (not inner or raw[at + 1 : at + 2] == "("):
            raise UnknownWordError
        else:
            run = _RUN.match(raw, at)
            text = run[0] if run else char
            pieces.append(Piece(text, False))
            bare.append(text)
            at += len(text)
    outline = "".join(bare)
    return _at_home(pieces, outline, lookup) if _tilde(outline, top) else pieces


def _at_home(pieces: list[Piece], outline: str, lookup: Lookup) -> list[Piece]:
    """The pieces with the home directory in place of ``~``."""
    home = lookup.home
    if home is None or not _HOME.fullmatch(outline):
        raise UnknownWordError("the home directory decides")
    return [Piece(home + pieces[0].text[1:], True), *pieces[1:]]


def _tilde(outline: str, top: bool) -> bool:
    """Whether bash puts a home directory in: at the begin, and behind ``=`` and ``:`` of what sets a variable."""
    if outline.startswith("~"):
        return True
    sets = not top or ASSIGNMENT.match(outline) is not None
    return sets and (":~" in outline or "=~" in outline)


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
            run = _TEXT.match(raw, at)
            text.append(run[0] if run else char)
            at = run.end() if run else at + 1
    if end:
        raise UnknownWordError
    pieces.append(Piece("".join(text), True))
    return at


def _expansion(raw: str, at: int, lookup: Lookup, pieces: list[Piece], quoted: bool) -> int:
    """One expansion that begins at ``$`` or a backquote; returns the offset after it."""
    if raw[at] == "`":
        close = closing_quote(raw, at + 1, "`")
        body = raw[at + 1 : close]
        if quoted and '\\"' in body:
            raise UnknownWordError
        body = re.sub(r"\\([$`\\])", r"\1", body)
        pieces.append(Piece(output_of(body, lookup, expand), quoted, not quoted))
        return close + 1
    if raw.startswith("$(", at) and not raw.startswith("$((", at):
        try:
            close = closing_bracket(raw, at + 1, ")") - 1
        except UnfinishedWordError:
            raise UnknownWordError from None
        pieces.append(Piece(output_of(raw[at + 2 : close], lookup, expand), quoted, not quoted))
        return close + 1
    return dollar(raw, at, lookup, pieces, quoted, INNER)


def _default(word: str, lookup: Lookup, quoted: bool) -> list[Piece]:
    """The word of ``${name:-word}``."""
    if quoted:
        if set(word) & set("'\"\\"):
            raise UnknownWordError
        return [Piece(expand_quoted(word, lookup), True)]
    return [
        Piece(p.text, p.quoted, not p.quoted, p.items) if p.items is None else p
        for p in _pieces(word, lookup, top=False, inner=True)
    ]


def expand_inner(text: str, lookup: Lookup) -> str:
    """A text inside ``${ }`` or between the brackets of an element: quotes removed, nothing split.

    Raises:
        UnknownWordError: the text is not known.
    """
    found = _pieces(text, lookup, top=False, inner=True)
    if any(p.items is not None for p in found):
        raise UnknownWordError
    return "".join(p.text for p in found)


INNER = Words(_default, lambda word, lookup: _pieces(word, lookup, top=False, inner=True), expand_quoted)
