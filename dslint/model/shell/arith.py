"""Integer arithmetic of the shell, ``$(( ))``: only what has one reading, anything else is ``None``."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)(?![\w#@])|(?P<name>\$?\{?[A-Za-z_]\w*\}?)"
    r"|(?P<operator>\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!~&|^?:,]))",
    re.ASCII,
)
_NAME = re.compile(r"\$\{(\w+)\}|\$?(\w+)", re.ASCII)
# Left-associative operators, the weakest first; ``?:`` and ``,`` are weaker, ``**`` and signs stronger.
_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %")
_PRECEDENCE = {operator: level for level, names in enumerate(_LEVELS, 1) for operator in names.split()}
_LIMIT = 1 << 63


class _UnreadableError(Exception):
    """The expression has no value that can be read statically."""


def evaluate(expression: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of an expression; ``lookup`` gives the text of a variable or ``None`` when it is not known."""
    try:
        tokens = _tokens(expression, lookup)
        value, at = _list(tokens, 0)
    except (_UnreadableError, ZeroDivisionError, IndexError, RecursionError):
        return None
    return value if at == len(tokens) else None


def _tokens(expression: str, lookup: Callable[[str], str | None]) -> list[int | str]:
    # An assignment changes a variable; its sign is read as a part of no operator.
    if "--" in expression or "++" in expression:
        raise _UnreadableError
    out: list[int | str] = []
    at = 0
    text = expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _UnreadableError
        if match["name"]:
            out.append(_variable(match["name"], lookup))
        else:
            out.append(match["operator"] or _number(match["number"]))
        at = match.end()
    return out


def _variable(token: str, lookup: Callable[[str], str | None]) -> int:
    name = _NAME.fullmatch(token)
    if name is None:
        raise _UnreadableError
    value = lookup(name[1] or name[2])
    text = (value or "").strip(" \t\n")
    # An empty variable is 0, and so is an unset one, which may come from outside. Other texts are expressions.
    if value is not None and not text and not token.startswith("$"):
        return 0
    if not re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+)", text):
        raise _UnreadableError
    if text.startswith("-"):
        if token.startswith("$"):
            raise _UnreadableError
        return -_number(text[1:])
    return _number(text)


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return _bounded(int(text, 16))
    if len(text) > 1 and text.startswith("0"):
        if not set(text) <= set("01234567"):
            raise _UnreadableError
        return _bounded(int(text, 8))
    if len(text) > 20:
        raise _UnreadableError
    return _bounded(int(text))


def _bounded(value: int) -> int:
    if not -_LIMIT <= value < _LIMIT:
        raise _UnreadableError
    return value


def _list(tokens: list[int | str], at: int) -> tuple[int, int]:
    """``a, b`` is ``b``."""
    value, at = _choice(tokens, at)
    while at < len(tokens) and tokens[at] == ",":
        value, at = _choice(tokens, at + 1)
    return value, at


def _choice(tokens: list[int | str], at: int) -> tuple[int, int]:
    """``test ? a : b``."""
    value, at = _binary(tokens, at, 1)
    if at >= len(tokens) or tokens[at] != "?":
        return value, at
    first, at = _list(tokens, at + 1)
    if tokens[at] != ":":
        raise _UnreadableError
    second, at = _choice(tokens, at + 1)
    return (first if value else second), at


def _binary(tokens: list[int | str], at: int, level: int) -> tuple[int, int]:
    """Left-associative operators of ``level`` and above, by precedence climbing."""
    left, at = _power(tokens, at)
    while at < len(tokens):
        operator = tokens[at]
        precedence = _PRECEDENCE.get(operator, 0) if isinstance(operator, str) else 0
        if precedence < level:
            break
        right, at = _binary(tokens, at + 1, precedence + 1)
        left = _bounded(_apply(str(operator), left, right))
    return left, at


def _power(tokens: list[int | str], at: int) -> tuple[int, int]:
    base, at = _unary(tokens, at)
    if at < len(tokens) and tokens[at] == "**":
        exponent, at = _power(tokens, at + 1)
        if not 0 <= exponent < 64:
            raise _UnreadableError
        base = _bounded(base**exponent)
    return base, at


def _unary(tokens: list[int | str], at: int) -> tuple[int, int]:
    token = tokens[at]
    if isinstance(token, int):
        return token, at + 1
    if token == "(":
        value, at = _list(tokens, at + 1)
        if tokens[at] != ")":
            raise _UnreadableError
        return value, at + 1
    if token in ("-", "+", "!", "~"):
        value, at = _unary(tokens, at + 1)
        return _bounded({"-": -value, "+": value, "!": int(not value), "~": ~value}[token]), at
    raise _UnreadableError


def _apply(operator: str, left: int, right: int) -> int:
    if operator in _COMPARE:
        return int(_COMPARE[operator](left, right))
    if operator in ("<<", ">>"):
        if not 0 <= right < 64 or left < 0:
            raise _UnreadableError
        return left << right if operator == "<<" else left >> right
    if operator in _PLAIN:
        return _PLAIN[operator](left, right)
    # C rounds towards zero, Python towards minus infinity.
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if operator == "/" else left - quotient * right


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}
_PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
