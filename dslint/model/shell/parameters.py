"""Parameter and arithmetic expansion: ``$name``, ``$1``, ``${name:-word}``, ``${array[@]}``, ``$(( ))``."""

from __future__ import annotations

import re
from collections.abc import Callable

from dslint.model.shell.arith import evaluate
from dslint.model.shell.pieces import Lookup, Piece, UnknownWordError, Value

# The word of ``${name:-word}``, the view of variables, inside quotes or not.
Expand = Callable[[str, Lookup, bool], list[Piece]]

_PLAIN = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#]", re.ASCII)
_BRACED = re.compile(
    r"(?P<hash>#?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*])(?P<index>\[(?:@|\*|\d+)\])?(?P<op>:?[-=+?])?(?P<word>.*)",
    re.DOTALL | re.ASCII,
)
_SLICE = re.compile(r":\s*(\d+)\s*(?::\s*(\d+)\s*)?")
# ``${path%/*}`` and its kin, with a pattern of plain characters and stars.
_CUT = re.compile(r"(?P<op>%%|%|##|#)(?P<pattern>[\w./*=:@+-]+)")
_BLANKS = " \t\n"
_DEPTH = 20


def dollar(raw: str, at: int, lookup: Lookup, pieces: list[Piece], quoted: bool, default: Expand) -> int:
    """One expansion that begins at ``$``; returns the offset after it.

    Raises:
        UnknownWordError: its value is not known.
    """
    name = _PLAIN.match(raw, at + 1)
    if name:
        _named(name[0], lookup, pieces, quoted)
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
        _braced(raw[at + 2 : close - 1], lookup, pieces, quoted, default)
        return close
    following = raw[at + 1 : at + 2]
    # A lone dollar sign is itself; $?, $'...' and the like are not known.
    if (following and following not in _BLANKS + '"/.,:=%+-]}') or (following == '"' and not quoted):
        raise UnknownWordError
    pieces.append(Piece("$", True))
    return at + 1


def _named(name: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    if name == "#":
        pieces.append(Piece(str(len(_items(lookup.read("@")))), quoted, not quoted))
    elif name in ("@", "*"):
        _whole(lookup.read("@"), f"[{name}]", lookup, pieces, quoted)
    else:
        pieces.append(Piece(lookup.read(name).text, quoted, not quoted))


def _braced(body: str, lookup: Lookup, pieces: list[Piece], quoted: bool, default: Expand) -> None:
    match = _BRACED.fullmatch(body)
    if match is None:
        raise UnknownWordError
    name, index, op, word = match["name"], match["index"], match["op"], match["word"]
    if name in ("@", "*"):
        name, index = "@", index or f"[{name}]"
    if match["hash"]:
        if op or word:
            raise UnknownWordError
        value = lookup.read(name)
        size = len(_items(value)) if index in ("[@]", "[*]") else len(_element(value, index))
        pieces.append(Piece(str(size), quoted, not quoted))
    elif word and not op:
        _cut(lookup.read(name), index, word, lookup, pieces, quoted)
    elif op is None and index in ("[@]", "[*]"):
        _whole(lookup.read(name), index, lookup, pieces, quoted)
    elif op is None:
        pieces.append(Piece(_element(lookup.read(name), index), quoted, not quoted))
    elif index is None:
        _defaulted(name, op, word, lookup, pieces, quoted, default)
    else:
        raise UnknownWordError


def _items(value: Value) -> tuple[str, ...]:
    return value.items if value.items is not None else (value.text,)


def _element(value: Value, index: str | None) -> str:
    if index in ("[@]", "[*]"):
        raise UnknownWordError
    at = int(index[1:-1]) if index else 0
    items = _items(value)
    return items[at] if at < len(items) else ""


def _whole(value: Value, index: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    items = _items(value)
    if quoted and index == "[*]":
        pieces.append(Piece(" ".join(items), True))
    else:
        lookup.places = value.places if len(value.places) == len(items) else ()
        pieces.append(Piece("", quoted, not quoted, items))


def _cut(value: Value, index: str | None, word: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    """``${array[@]:2}``, ``${path##*/}``."""
    part = _SLICE.fullmatch(word)
    if part is not None and index is not None:
        start, count = int(part[1]), None if part[2] is None else int(part[2])
        # ``${@:1}`` begins with ``$1``, ``${array[@]:0}`` with the first element.
        start -= value.first
        if start < 0:
            raise UnknownWordError
        chosen = slice(start, None if count is None else start + count)
        _whole(Value("", _items(value)[chosen], (), value.places[chosen]), index, lookup, pieces, quoted)
        return
    cut = _CUT.fullmatch(word)
    if cut is None:
        raise UnknownWordError
    pieces.append(Piece(_without(_element(value, index), cut["op"], cut["pattern"]), quoted, not quoted))


def _without(text: str, op: str, pattern: str) -> str:
    """The text without its shortest (``%``, ``#``) or longest (``%%``, ``##``) end or begin that matches."""
    regex = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    sizes = range(len(text) + 1) if len(op) == 1 else range(len(text), -1, -1)
    for size in sizes:
        part = text[len(text) - size :] if op[0] == "%" else text[:size]
        if regex.fullmatch(part):
            return text[: len(text) - size] if op[0] == "%" else text[size:]
    return text


def _defaulted(
    name: str, op: str, word: str, lookup: Lookup, pieces: list[Piece], quoted: bool, default: Expand
) -> None:
    """``${name:-word}`` and its kin."""
    if name == "@":
        raise UnknownWordError
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
    else:
        pieces += default(word, lookup, quoted)
    lookup.depth -= 1


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
