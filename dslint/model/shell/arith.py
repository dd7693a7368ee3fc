"""Integer arithmetic of the shell, ``$(( ))``: only what has one reading, anything else is ``None``."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)(?![\w#@])|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<<|>>|[-+*/%()]))")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_LIMIT = 1 << 63


class _UnreadableError(Exception):
    """The expression has no value that can be read statically."""


def evaluate(expression: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of an expression; ``lookup`` gives the text of a variable or ``None`` when it is not known."""
    try:
        tokens = _tokens(expression, lookup)
        value, at = _sum(tokens, 0, 1)
    except (_UnreadableError, ZeroDivisionError, IndexError, RecursionError):
        return None
    return value if at == len(tokens) and -_LIMIT <= value < _LIMIT else None


def _tokens(expression: str, lookup: Callable[[str], str | None]) -> list[int | str]:
    if "--" in expression or "++" in expression:
        raise _UnreadableError
    out: list[int | str] = []
    at = 0
    text = expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match[0].count("{") != match[0].count("}") or ("{" in match[0]) > ("$" in match[0]):
            raise _UnreadableError
        number, name, operator = match.groups()
        if name is not None:
            number = (lookup(name) or "").strip()
            # An empty or unset variable is 0 in bash, but an unset one may come from outside.
            if not re.fullmatch(r"0|[1-9]\d*|-[1-9]\d*", number):
                raise _UnreadableError
            if number.startswith("-") and "$" in match[0]:
                raise _UnreadableError
        out.append(operator if operator else _number(number))
        at = match.end()
    return out


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if len(text) > 1 and text.startswith("0"):
        if not set(text) <= set("01234567"):
            raise _UnreadableError
        return int(text, 8)
    return int(text)


def _sum(tokens: list[int | str], at: int, level: int) -> tuple[int, int]:
    """Left-associative operators of ``level`` and above, by precedence climbing."""
    left, at = _unary(tokens, at)
    while at < len(tokens):
        operator = tokens[at]
        precedence = _PRECEDENCE.get(operator, 0) if isinstance(operator, str) else 0
        if precedence < level:
            break
        right, at = _sum(tokens, at + 1, precedence + 1)
        left = _apply(str(operator), left, right)
        if not -_LIMIT <= left < _LIMIT:
            raise _UnreadableError
    return left, at


def _unary(tokens: list[int | str], at: int) -> tuple[int, int]:
    token = tokens[at]
    if isinstance(token, int):
        return token, at + 1
    if token == "(":
        value, at = _sum(tokens, at + 1, 1)
        if tokens[at] != ")":
            raise _UnreadableError
        return value, at + 1
    if token in ("-", "+"):
        value, at = _unary(tokens, at + 1)
        return (-value if token == "-" else value), at
    raise _UnreadableError


def _apply(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    # C rounds towards zero, Python towards minus infinity.
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if operator == "/" else left - quotient * right
