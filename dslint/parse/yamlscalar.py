"""YAML scalars as ``yaml.safe_load`` reads them: YAML 1.1, where ``no`` is false and ``1e-5`` is a string."""

from __future__ import annotations

import math
import re

_TRUE = frozenset(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
)
_INT = re.compile(
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+"
)
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "\\": "\\", "/": "/", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX = {"x": 2, "u": 4, "U": 8}
_DIGITS = re.compile(r"[0-9a-fA-F]+")
_BREAKS = re.compile(r"[ \t]*(?:\r\n|\n|\r)(?:[ \t]*(?:\r\n|\n|\r))*[ \t]*")
_TOKEN = re.compile(r"\\(?:\r\n|[\s\S])|[ \t]*(?:\r\n|\n|\r)(?:[ \t]*(?:\r\n|\n|\r))*[ \t]*|[^\\ \t\r\n]+|[ \t]+|\\")


def plain(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar that stands on one line."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    try:
        if _FLOAT.fullmatch(text):
            return _float(text.replace("_", "").lower())
        if _INT.fullmatch(text):
            return _int(text.replace("_", ""))
    except ValueError:  # digits that are underscores only, or more than CPython reads
        return text
    return text


def _int(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if ":" in digits:
        return sign * int(_sexagesimal(digits.split(":")))
    if digits[:2] in ("0b", "0x"):
        return sign * int(digits[2:], 2 if digits[1] == "b" else 16)
    return sign * int(digits, 8 if digits[0] == "0" and digits != "0" else 10)


def _float(text: str) -> float:
    sign = -1.0 if text.startswith("-") else 1.0
    digits = text.lstrip("+-")
    if digits == ".inf":
        return sign * math.inf
    if digits == ".nan":
        return math.nan
    if ":" in digits:
        return sign * _sexagesimal(digits.split(":"))
    return sign * float(digits)


def _sexagesimal(parts: list[str]) -> float:
    """``1:30`` is ninety: YAML 1.1 counts time in base sixty."""
    value: float = 0
    for part in parts:
        value = value * 60 + (float(part) if "." in part else int(part))
    return value


def fold(text: str) -> str:
    """A plain scalar over several lines: one line break is a space, ``n`` are ``n - 1`` breaks."""
    return _BREAKS.sub(lambda match: _folded(match[0]), text)


def _folded(blank: str) -> str:
    count = blank.replace("\r\n", "\n").replace("\r", "\n").count("\n")
    return "\n" * (count - 1) or " "


def single_quoted(inner: str) -> str:
    """The text between single quotes."""
    return fold(inner).replace("''", "'")


def double_quoted(inner: str) -> str | None:
    """The text between double quotes; None when an escape is wrong."""
    parts: list[str] = []
    at = 0
    while at < len(inner):
        match = _TOKEN.match(inner, at)
        if match is None:
            return None
        token = match[0]
        at = match.end()
        if not token.startswith("\\"):
            parts.append(_folded(token) if "\n" in token or "\r" in token else token)
        elif token[1:2] in ("\n", "\r"):
            # An escaped line end joins the lines; blank lines after it still count.
            rest = _BREAKS.match(inner, at)
            if rest:
                parts.append("\n" * rest[0].replace("\r\n", "\n").replace("\r", "\n").count("\n"))
                at = rest.end()
            while inner[at : at + 1] in (" ", "\t"):
                at += 1
        elif token[1:] in _ESCAPES:
            parts.append(_ESCAPES[token[1:]])
        elif token[1:] in _HEX:
            digits = inner[at : at + _HEX[token[1:]]]
            if len(digits) < _HEX[token[1:]] or not _DIGITS.fullmatch(digits) or int(digits, 16) > 0x10FFFF:
                return None
            parts.append(chr(int(digits, 16)))
            at += len(digits)
        else:
            return None
    return "".join(parts)


_HEADER = re.compile(r"([|>])([-+]?)([1-9]?)([-+]?)[^\r\n]*(?:\r\n|\n|\r|$)")
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")


def block(text: str, start: int, parent_indent: int) -> str | None:
    """The literal or folded scalar whose ``|`` or ``>`` stands at ``start``; None for a wrong header.

    ``parent_indent`` is the column of the collection around it, -1 for none.
    """
    header = _HEADER.match(text, start)
    if header is None:
        return None
    style, chomp = header[1], header[2] or header[4]
    least = max(1, parent_indent + 1)
    lines = _lines(text, header.end())
    indent = least + int(header[3]) - 1 if header[3] else _detect(lines, least)
    content: list[str] = []
    for line in lines:
        lead = len(line) - len(line.lstrip(" "))
        if lead >= indent:
            content.append(line[indent:])
        elif line.strip(" "):
            break
        else:
            content.append("")
    while content and not content[-1]:
        content.pop()
    kept = len(content)
    # Blank lines after the last content line, and whether that line has a line end at all.
    blank = 0
    for line in lines[kept:]:
        if line.strip(" "):
            break
        blank += 1
    ended = kept < len(lines)
    body = "\n".join(content) if style == "|" else _fold_block(content)
    if chomp == "-" or (not content and chomp != "+"):
        return body
    if chomp == "+":
        return body + "\n" * (blank - (kept + blank == len(lines)) + (1 if content and ended else 0))
    return body + ("\n" if ended else "")


def _lines(text: str, start: int) -> list[str]:
    """The lines from an offset; a text that ends with a line end has an empty last one."""
    found = []
    at = start
    while at <= len(text):
        match = _LINE.match(text, at)
        if match is None:
            break
        found.append(match[1])
        if not match[2]:
            break
        at = match.end()
    return found


def _detect(lines: list[str], least: int) -> int:
    """The indentation of the first line with content; longer blank lines before it count as well."""
    longest = 0
    for line in lines:
        lead = len(line) - len(line.lstrip(" "))
        longest = max(longest, lead)
        if line.strip(" "):
            break
    return max(least, longest)


def _fold_block(content: list[str]) -> str:
    """Join lines with spaces; lines that begin with a blank, and breaks next to them, stay."""
    parts: list[str] = []
    blanks = 0
    before: str | None = None
    for line in content:
        if not line:
            blanks += 1
            continue
        if before is None:
            parts.append("\n" * blanks)
        elif before[0] in " \t" or line[0] in " \t":
            parts.append("\n" * (blanks + 1))
        else:
            parts.append("\n" * blanks or " ")
        parts.append(line)
        before, blanks = line, 0
    return "".join(parts)
