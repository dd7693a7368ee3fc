"""Parameter and arithmetic expansion: ``$name``, ``${name:-word}``, ``${array[@]}``, ``$(( ))``, ``$'...'``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from dslint.model.shell.ansi import ansi_text, closing_quote
from dslint.model.shell.arith import evaluate
from dslint.model.shell.pieces import ALWAYS_SET, Lookup, Piece, UnknownWordError, Value
from dslint.model.shell.transforms import Transform, transform
from dslint.parse.shelllex import UnfinishedWordError, closing_bracket

_PLAIN = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#]", re.ASCII)
_BRACED = re.compile(
    r"(?P<sign>[#!]?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*])(?:\[(?P<index>(?:[^][]|\[[^][]*\])*)\])?(?P<rest>.*)",
    re.DOTALL | re.ASCII,
)
_DEFAULTING = re.compile(r"(:?[-=+?])(.*)", re.DOTALL)
_INDIRECT = re.compile(r"([A-Za-z_]\w*)(?:\[([@*]|\d+)\])?", re.ASCII)
_BLANKS = " \t\n"
_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Words:
    """What the expansion of a word does inside an expansion: of ``word`` in ``${name:-word}``, of a pattern, of a text.

    ``default`` takes the word and whether it stands in double quotes, ``pieces`` reads a pattern or the text that
    replaces it, ``quoted`` a text as if between double quotes.
    """

    default: Callable[[str, Lookup, bool], list[Piece]]
    pieces: Callable[[str, Lookup], list[Piece]]
    quoted: Callable[[str, Lookup], str]


def dollar(raw: str, at: int, lookup: Lookup, pieces: list[Piece], quoted: bool, words: Words) -> int:
    """One expansion that begins at ``$``; returns the offset after it.

    Raises:
        UnknownWordError: its value is not known.
    """
    name = _PLAIN.match(raw, at + 1)
    if name:
        _named(name[0], lookup, pieces, quoted)
        return name.end()
    if raw.startswith("$((", at) and (close := _closing(raw, at + 1, ")")) and raw[close - 2 : close] == "))":
        pieces.append(Piece(str(arithmetic(raw[at + 3 : close - 2], lookup, words)), quoted, not quoted))
        return close
    if raw.startswith("$[", at):
        close = _closing(raw, at + 1, "]")
        pieces.append(Piece(str(arithmetic(raw[at + 2 : close - 1], lookup, words)), quoted, not quoted))
        return close
    if raw.startswith("${", at):
        close = _closing(raw, at + 1, "}")
        _braced(raw[at + 2 : close - 1], lookup, pieces, quoted, words)
        return close
    following = raw[at + 1 : at + 2]
    if following == "'" and not quoted:
        close = closing_quote(raw, at + 2, "'")
        pieces.append(Piece(ansi_text(raw[at + 2 : close]), True))
        return close + 1
    if following == '"' and not quoted:  # a text to translate, where somebody has translations
        return at + 1
    # A lone dollar sign is itself; $? and the like are not known.
    if following and following not in _BLANKS + '"/.,:=%+]}':
        raise UnknownWordError
    pieces.append(Piece("$", True))
    return at + 1


def arithmetic(expression: str, lookup: Lookup, words: Words) -> int:
    """The value of ``$((expression))``: expansions go first, as between double quotes.

    Raises:
        UnknownWordError: its value is not known.
    """
    if "$" in expression or "`" in expression:
        expression = words.quoted(expression, lookup)
    value = evaluate(expression, lambda name: lookup.read(name).text)
    if value is None:
        raise UnknownWordError
    return value


def _closing(raw: str, at: int, closing: str) -> int:
    try:
        return closing_bracket(raw, at, closing)
    except UnfinishedWordError:
        raise UnknownWordError from None


def _named(name: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    if name == "#":
        pieces.append(Piece(str(len(_items(lookup.read("@")))), quoted, not quoted))
    elif name in ("@", "*"):
        _whole(lookup.read("@"), name, lookup, pieces, quoted)
    else:
        pieces.append(Piece(lookup.read(name).text, quoted, not quoted))


def _braced(body: str, lookup: Lookup, pieces: list[Piece], quoted: bool, words: Words) -> None:
    match = _BRACED.fullmatch(body if body != "#" else "#@[@]")
    if match is None:
        raise UnknownWordError
    name, index, rest = match["name"], match["index"], match["rest"]
    if name in ("@", "*"):
        name, index = "@", index or name
    if match["sign"] == "#":
        pieces.append(Piece(str(_size(name, index, rest, lookup, words)), quoted, not quoted))
        return
    if match["sign"] == "!" and index in ("@", "*"):
        _indices(name, index, rest, lookup, pieces, quoted)
        return
    defaulting = _DEFAULTING.fullmatch(rest)
    if match["sign"] == "!":
        name, index = _pointed(name, index, lookup)
    if defaulting is None:
        _changed(name, index, rest, lookup, pieces, quoted, words)
    elif index is None and not match["sign"]:
        _defaulted(name, defaulting[1], defaulting[2], lookup, pieces, quoted, words)
    elif index == "@" and defaulting[1] in ("-", ":-") and not match["sign"] and any(_items(lookup.read(name))):
        _whole(lookup.read(name), index, lookup, pieces, quoted)
    else:
        raise UnknownWordError


def _changed(
    name: str, index: str | None, rest: str, lookup: Lookup, pieces: list[Piece], quoted: bool, words: Words
) -> None:
    """``${name}``, ``${name[2]}``, ``${array[@]}``, each with what may follow the name."""
    value = lookup.read(name)
    if index not in ("@", "*"):
        change = _change(rest, lookup, quoted, words)
        text = _element(value, index, lookup, words)
        pieces.append(Piece(change(text) if change is not None else text, quoted, not quoted))
    elif rest.startswith(":"):
        _whole(_slice(value, rest, lookup, words), index, lookup, pieces, quoted)
    else:
        change = _change(rest, lookup, quoted, words)
        if change is not None:
            items = tuple(map(change, _items(value)))
            value = replace(value, items=items)
        _whole(value, index, lookup, pieces, quoted)


def _change(rest: str, lookup: Lookup, quoted: bool, words: Words) -> Transform | None:
    """What ``${name%pattern}`` and its kin do to the value."""
    if not rest:
        return None

    def parts(word: str) -> list[tuple[str, bool]]:
        found = words.pieces(word, lookup)
        if any(p.items is not None for p in found):
            raise UnknownWordError
        return [(p.text, p.quoted) for p in found]

    return transform(rest, parts, lambda expression: arithmetic(expression, lookup, words), quoted)


def _size(name: str, index: str | None, rest: str, lookup: Lookup, words: Words) -> int:
    """``${#name}``, ``${#array[@]}``."""
    if rest:
        raise UnknownWordError
    value = lookup.read(name)
    if index in ("@", "*"):
        return len(_items(value))
    text = _element(value, index, lookup, words)
    if not text.isascii():
        raise UnknownWordError  # characters or bytes: the locale decides
    return len(text)


def _indices(name: str, index: str, rest: str, lookup: Lookup, pieces: list[Piece], quoted: bool) -> None:
    """``${!array[@]}``."""
    if rest or name == "@":
        raise UnknownWordError
    value = lookup.read(name)
    keys = value.keys if value.keys is not None else tuple(str(n) for n in range(len(_items(value))))
    _whole(Value("", keys), index, lookup, pieces, quoted, is_ordered=value.keys is None)


def _pointed(name: str, index: str | None, lookup: Lookup) -> tuple[str, str | None]:
    """The variable that ``${!name}`` names."""
    target = _INDIRECT.fullmatch(lookup.read(name).text) if index is None else None
    if target is None:
        raise UnknownWordError
    return target[1], target[2]


def _key(index: str, lookup: Lookup, words: Words) -> str:
    """The name of an element of an associative array."""
    found = words.pieces(index, lookup)
    if any(p.items is not None for p in found):
        raise UnknownWordError
    return "".join(p.text for p in found)


def _items(value: Value) -> tuple[str, ...]:
    return value.items if value.items is not None else (value.text,)


def _element(value: Value, index: str | None, lookup: Lookup, words: Words) -> str:
    items = _items(value)
    if value.keys is not None:
        key = _key(index or "0", lookup, words)
        return items[value.keys.index(key)] if key in value.keys else ""
    at = arithmetic(index, lookup, words) if index else 0
    if index == "" or at < -len(items):
        raise UnknownWordError
    return items[at] if at < len(items) else ""


def _whole(
    value: Value, index: str, lookup: Lookup, pieces: list[Piece], quoted: bool, is_ordered: bool = True
) -> None:
    items = _items(value)
    if len(items) > 1 and not (is_ordered and value.keys is None):
        raise UnknownWordError("the order of an associative array")
    if quoted and index == "*":
        if lookup.joiner is None:
            raise UnknownWordError
        pieces.append(Piece(lookup.joiner.join(items), True))
    else:
        lookup.places = value.places if len(value.places) == len(items) else ()
        pieces.append(Piece("", quoted, not quoted, items))


def _slice(value: Value, rest: str, lookup: Lookup, words: Words) -> Value:
    """``${array[@]:2}``, ``${@:1:3}``."""
    first, _, second = rest[1:].partition(":")
    if set(rest) & set("?{(") or value.keys is not None:
        raise UnknownWordError
    items = _items(value)
    start = arithmetic(first, lookup, words)
    count = arithmetic(second, lookup, words) if second.strip() else None
    # ``${@:1}`` begins with ``$1``, ``${array[@]:0}`` with the first element.
    start = start + len(items) if start < 0 else start - value.first
    if start < 0 or (count is not None and count < 0) or (second == "" and rest.count(":") > 1):
        raise UnknownWordError
    chosen = slice(start, None if count is None else start + count)
    return Value("", items[chosen], (), value.places[chosen])


def _defaulted(name: str, op: str, word: str, lookup: Lookup, pieces: list[Piece], quoted: bool, words: Words) -> None:
    """``${name:-word}`` and its kin."""
    if name == "@":
        raise UnknownWordError
    lookup.depth += 1
    if lookup.depth > _DEPTH:
        raise UnknownWordError
    unset = lookup.is_unset(name)
    is_open = op[-1] == "+" and not lookup.is_without(name)
    if unset and (is_open or op[-1] == "?" or ALWAYS_SET.fullmatch(name)):
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
        pieces += words.default(word, lookup, quoted)
    lookup.depth -= 1
