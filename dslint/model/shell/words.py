"""Expansion of shell words as bash does it, as far as the values are known.

A word goes through parameter and arithmetic expansion, word splitting and quote removal. Whatever depends on the
file system, on running a command or on a variable that nobody sets makes the word unknown, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dslint.core.source import Location
from dslint.model.shell.arith import evaluate

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<index>\[[^]]*\])?(?P<append>\+?)=", re.ASCII)
_BLANKS = " \t\n"
_RUN = re.compile(r"""[^\\'"$`<>()|&;]+""")
_DEPTH = 20
# A text that doubles itself in a loop of assignments is no command line.
_MAX_LENGTH = 100_000
_ESCAPED_IN_QUOTES = '$`"\\\n'
# Unquoted characters that bash replaces by file names, users or lists, or that end a word.
_ACTIVE = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\{.*\{.*[,.].*\}")


@dataclass(frozen=True, slots=True)
class Value:
    """What a variable holds: a text, or the elements of an array, with the places that set it."""

    text: str = ""
    items: tuple[str, ...] | None = None
    origins: tuple[Location, ...] = ()


@dataclass(slots=True)
class Lookup:
    """How the expansion sees variables.

    ``get`` returns a value, ``None`` when it is not known. ``is_unset`` says that nothing in the file sets the
    name, so that ``${NAME:-default}`` stands for its default. ``split`` is false when ``IFS`` may have changed.
    """

    get: Callable[[str], Value | None]
    is_unset: Callable[[str], bool]
    split: bool = True
    used: list[Location] = field(default_factory=list)
    # How many ``${x:-...}`` are open.
    depth: int = 0

    def read(self, name: str) -> Value:
        """The value of a variable, remembering where it was set.

        Raises:
            UnknownWordError: the value is not known.
        """
        value = self.get(name)
        if value is None:
            raise UnknownWordError
        if len(value.text) > _MAX_LENGTH or (value.items is not None and len(value.items) > _MAX_LENGTH // 10):
            raise UnknownWordError
        self.used += [o for o in value.origins if o not in self.used]
        return value


class UnknownWordError(Exception):
    """Part of the word is not known."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a word: ``quoted`` text is neither split nor matched against files.

    ``splits`` marks the result of an unquoted expansion. ``items`` is ``"${array[@]}"``.
    """

    text: str
    quoted: bool
    splits: bool = False
    items: tuple[str, ...] | None = None


def expand(raw: str, lookup: Lookup) -> list[str]:
    """The words that bash makes of one word of a command.

    Raises:
        UnknownWordError: at least one of them is not known.
    """
    if _is_plain(raw):
        return [raw]
    return _fields(_pieces(raw, lookup, top=True), lookup)


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
            close = _find(raw, "'", at + 1)
            pieces.append(Piece(raw[at + 1 : close], True))
            bare.append(" ")
            at = close + 1
        elif char == '"':
            pieces.append(Piece("", True))
            at = _quoted(raw, at + 1, lookup, pieces, end='"')
            bare.append(" ")
        elif char == "$":
            at = _dollar(raw, at, lookup, pieces, quoted=False)
            bare.append(" ")
        elif char in "`<>()|&;":
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
        elif char == "`":
            raise UnknownWordError
        elif char == "$":
            pieces.append(Piece("".join(text), True))
            text = []
            at = _dollar(raw, at, lookup, pieces, quoted=True)
        else:
            text.append(char)
            at += 1
    if end:
        raise UnknownWordError
    pieces.append(Piece("".join(text), True))
    return at


def _dollar(raw: str, at: int, lookup: Lookup, pieces: list[Piece], quoted: bool) -> int:
    """One expansion that begins at ``$``; returns the offset after it."""
    name = NAME.match(raw, at + 1)
    if name:
        pieces.append(Piece(lookup.read(name[0]).text, quoted, not quoted))
        return name.end()
    if raw.startswith("$((", at):
        close = _balanced(raw, at + 1, "(", ")")
        if raw[close - 2 : close] != "))":
            raise UnknownWordError
        value = evaluate(raw[at + 3 : close - 2], lambda n: lookup.read(n).text)
        if value is None:
            raise UnknownWordError
        pieces.append(Piece(str(value), quoted, not quoted))
        return close
    if raw.startswith("${", at):
        close = _balanced(raw, at + 1, "{", "}")
        _braced(raw[at + 2 : close - 1], lookup, pieces, quoted)
        return close
    following = raw[at + 1 : at + 2]
    # A lone dollar sign is itself; $1, $@, $(...), $'...' and the like are not known.
    if (following and following not in _BLANKS + '"/.,:=%+-]}') or (following == '"' and not quoted):
        raise UnknownWordError
    pieces.append(Piece("$", True))
    return at + 1


_BRACED = re.compile(
    r"(?P<hash>#?)(?P<name>[A-Za-z_]\w*)(?P<index>\[(?:@|\*|\d+)\])?(?P<op>:?[-=+?])?(?P<word>.*)", re.DOTALL | re.ASCII
)


def _braced(body: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    match = _BRACED.fullmatch(body)
    if match is None or (match["word"] and not match["op"]):
        raise UnknownWordError
    name, index, op = match["name"], match["index"], match["op"]
    if match["hash"]:
        if op:
            raise UnknownWordError
        value = lookup.read(name)
        whole = index in ("[@]", "[*]")
        size = len(value.items if value.items is not None else (value.text,)) if whole else len(_element(value, index))
        pieces.append(Piece(str(size), quoted, not quoted))
    elif op is None and index in ("[@]", "[*]"):
        _whole(lookup.read(name), index, pieces, quoted)
    elif op is None:
        pieces.append(Piece(_element(lookup.read(name), index), quoted, not quoted))
    elif index is None:
        _defaulted(name, op, match["word"], lookup, pieces, quoted)
    else:
        raise UnknownWordError


def _element(value: Value, index: str | None) -> str:
    at = int(index[1:-1]) if index else 0
    items = value.items if value.items is not None else (value.text,)
    if index in ("[@]", "[*]"):
        raise UnknownWordError
    return items[at] if at < len(items) else ""


def _whole(value: Value, index: str, pieces: list[Piece], quoted: bool) -> None:
    items = value.items if value.items is not None else (value.text,)
    if quoted and index == "[*]":
        pieces.append(Piece(" ".join(items), True))
    else:
        pieces.append(Piece("", quoted, not quoted, items))


def _defaulted(name: str, op: str, word: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    """``${name:-word}`` and its kin."""
    lookup.depth += 1
    if lookup.depth > _DEPTH:
        raise UnknownWordError
    unset = lookup.is_unset(name)
    if unset and op[-1] in "+?":
        raise UnknownWordError
    text = "" if unset else lookup.read(name).text
    has_value = bool(text) if op.startswith(":") else not unset
    if op[-1] == "+":
        has_value = not has_value
        text = ""
    if has_value:
        pieces.append(Piece(text, quoted, not quoted))
    elif op[-1] == "?":
        raise UnknownWordError
    elif quoted:
        if set(word) & set("'\""):
            raise UnknownWordError
        pieces.append(Piece(expand_quoted(word, lookup), True))
    else:
        pieces += [
            Piece(p.text, p.quoted, not p.quoted, p.items) if p.items is None else p
            for p in _pieces(word, lookup, top=False)
        ]
    lookup.depth -= 1


def _fields(pieces: Sequence[Piece], lookup: Lookup) -> list[str]:
    """Word splitting and the check for file name patterns."""
    whole = next((p for p in pieces if p.items is not None), None)
    if whole is not None:
        return _spread(whole, pieces, lookup)
    # A field is a list of texts; ``None`` ends one.
    parts: list[str | None] = []
    for piece in pieces:
        if not piece.quoted and (_ACTIVE.search(piece.text) or (piece.splits and "\\" in piece.text)):
            raise UnknownWordError
        if piece.quoted or not piece.splits:
            parts.append(piece.text)
            continue
        if not lookup.split:
            raise UnknownWordError
        for index, part in enumerate(re.split(r"[ \t\n]+", piece.text)):
            parts += ([None] if index else []) + ([part] if part else [])
    return ["".join(filter(None, group)) for ends, group in groupby(parts, lambda p: p is None) if not ends]


def _spread(piece: Piece, pieces: Sequence[Piece], lookup: Lookup) -> list[str]:
    """``"${array[@]}"`` and ``${array[@]}``."""
    # Quotation marks around the expansion leave three empty pieces; anything else is glued to it.
    glued = any(p.text for p in pieces) or len(pieces) != (1 if piece.splits else 4)
    if glued or (piece.splits and not lookup.split):
        raise UnknownWordError
    if not piece.splits:
        return list(piece.items or ())
    elements = [e for i in piece.items or () for e in re.split(r"[ \t\n]+", i) if e]
    if any(_ACTIVE.search(e) or "\\" in e for e in elements):
        raise UnknownWordError
    return elements


def _find(raw: str, char: str, at: int) -> int:
    close = raw.find(char, at)
    if close < 0:
        raise UnknownWordError
    return close


def _balanced(raw: str, at: int, opening: str, closing: str) -> int:
    """The offset after the bracket that closes the one at ``at``; quotes inside make the word unknown."""
    depth = 0
    for index in range(at, len(raw)):
        char = raw[index]
        if char in "\\`":
            break
        if char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if not depth:
                return index + 1
    raise UnknownWordError
