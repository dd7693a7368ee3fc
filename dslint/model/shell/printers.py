"""What programs print that read nothing, worked out from their arguments: ``basename``, ``expr``, ``seq`` ...

Each takes its arguments and returns what it prints; ``None`` when that takes more than is done here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from dslint.model.shell.arith import evaluate

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_MOST = 1_000


def _echo(arguments: list[str]) -> str | None:
    end = "\n"
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        if "e" in arguments[0]:
            return None
        end = "" if "n" in arguments[0] else end
        arguments = arguments[1:]
    return " ".join(arguments) + end


def _printf(arguments: list[str]) -> str | None:
    """``%s``, ``%d`` and ``%02d``; the format is used again while there are arguments."""
    if not arguments or arguments[0].startswith("-"):
        return None
    template, values = arguments[0], arguments[1:]
    if re.search(r"%(?!s|%|0?\d?d)|\\(?![nt\\])", template):
        return None
    slots = len(re.findall(r"%(?:s|0?\d?d)", template.replace("%%", "")))
    if values and not slots:
        return None
    out: list[str] = []
    for begin in range(0, max(len(values), 1), slots or 1):
        part = iter(values[begin : begin + slots])
        text = _formatted(template, part)
        if text is None:
            return None
        out.append(text)
    return "".join(out)


_FORMAT = re.compile(r"%(?:(?P<s>s)|(?P<p>%)|(?P<zero>0?)(?P<width>\d?)d)|\\(?P<e>[nt\\])|(?P<c>[^%\\]+)")


def _formatted(template: str, values: Iterator[str]) -> str | None:
    out: list[str] = []
    for match in _FORMAT.finditer(template):
        if match["c"] or match["p"] or match["e"]:
            out.append(match["c"] or match["p"] or {"n": "\n", "t": "\t", "\\": "\\"}[match["e"]])
            continue
        value = next(values, None)
        if match["s"]:
            out.append(value or "")
            continue
        number = "0" if value is None else value
        if not _INTEGER.fullmatch(number):
            return None
        out.append(f"{int(number):{match['zero']}{match['width']}d}")
    return "".join(out)


def _basename(arguments: list[str]) -> str | None:
    if arguments[:1] == ["-s"] and len(arguments) == 3:
        arguments = [arguments[2], arguments[1]]
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-") or not arguments[0].strip("/"):
        return None
    name = posixpath.basename(arguments[0].rstrip("/"))
    suffix = arguments[1] if len(arguments) > 1 else ""
    return (name.removesuffix(suffix) if name != suffix else name) + "\n"


def _dirname(arguments: list[str]) -> str | None:
    if len(arguments) != 1 or arguments[0].startswith("-") or "//" in arguments[0]:
        return None
    if posixpath.basename(arguments[0]) in (".", ".."):
        return None  # the folder above the project, if the path was absolute
    return (posixpath.dirname(arguments[0].rstrip("/")) or ("/" if arguments[0].startswith("/") else ".")) + "\n"


def _expr(arguments: list[str]) -> str | None:
    operators = {"+", "-", "*", "/", "%", "(", ")", "<", "<=", "=", "==", "!=", ">=", ">"}
    if not arguments or not all(a in operators or _INTEGER.fullmatch(a) for a in arguments):
        return None
    words = [a if a in operators and a != "=" else "==" if a == "=" else f"({a})" for a in arguments]
    value = evaluate(" ".join(words), lambda _: None)
    return None if value is None else f"{value}\n"


def _seq(arguments: list[str]) -> str | None:
    separator = "\n"
    while arguments and arguments[0].startswith("-s"):
        joined = arguments[0][2:]
        if not joined and len(arguments) < 2:
            return None
        separator = joined or arguments[1]
        arguments = arguments[1 if joined else 2 :]
    if not 1 <= len(arguments) <= 3 or not all(_INTEGER.fullmatch(a) for a in arguments):
        return None
    numbers = [int(a) for a in arguments]
    first, step, last = {1: (1, 1, numbers[0]), 2: (numbers[0], 1, numbers[-1])}.get(len(numbers)) or tuple(numbers)
    if not step or abs(last - first) // abs(step) > _MOST:
        return None
    found = range(first, last + (1 if step > 0 else -1), step)
    return separator.join(map(str, found)) + "\n" if found else ""


PRINTERS: dict[str, Callable[[list[str]], str | None]] = {
    "basename": _basename,
    "dirname": _dirname,
    "echo": _echo,
    "expr": _expr,
    "printf": _printf,
    "seq": _seq,
}
