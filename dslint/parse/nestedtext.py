"""How deep a Python text nests, counted without a parser: for texts that a parser would not survive.

LibCST (1.9) ends the process on some 2,000 open brackets or 9,000 ``elif``; the standard library's parser stops at
200 brackets, but a mistake that stands before them makes it stop earlier and leaves them to LibCST. Up to Python
3.10, ``ast.parse`` itself ends the process on a chain of some 100,000 calls and subscripts.
"""

from __future__ import annotations

import re

# Python refuses more brackets than 200; LibCST is asked below half of them.
MAX_BRACKETS = 100
_STRING = (
    r"[rRbBuUfFtT]{0,2}(?:"
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|'
    r"'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|"
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'
    r"'[^'\\\n]*(?:\\.[^'\\\n]*)*')"
)
_WORDS = r"\b(?:def|class|elif|if|else|for|and|or|not|in|is|lambda|await|yield)\b"
_TOKEN = re.compile(rf"{_STRING}|#[^\n]*|[()\[\]{{}},;\n.+\-*/%@&|^<>~]|{_WORDS}", re.DOTALL)
_BRACE = re.compile(r"\{\{|\}\}|[{}]")
_CASE = re.compile(r"(?:\A|[\r\n])[ \t\f]*(?=case[ \t(\[{])")
_PATTERN = re.compile(rf"{_STRING}|#[^\n]*|[()\[\]{{}},:\n]|\bif\b", re.DOTALL)
_LITERAL = re.compile(_STRING, re.DOTALL)

# LibCST reads a mapping in a pattern several times at each level: 8 levels 0.07 s, 9 0.28 s, 10 1.2 s, 12 20 s.
_PATTERN_FACTOR = 4
_MAX_PATTERN_COST = 2_000_000
# The header of a ``case`` is not longer; prose that begins with this word may have no end.
_HEADER = 10_000


def deep_place(text: str, links: int, brackets: int = MAX_BRACKETS) -> int | None:
    """The offset at which more than ``brackets`` brackets are open, or more than ``links`` operators, calls and the
    like follow each other without a comma or an end of line between them, or more ``elif`` inside one function."""
    stack: list[int] = []
    found = elifs = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "([{":
            stack.append(found + 1)
            found = 0
        elif token in ")]}":
            found = stack.pop() if stack else 0
        elif token in ",;" or (token == "\n" and not stack):
            found = 0
        elif token in ("def", "class"):  # no expression goes on behind these: a bracket was never closed
            stack.clear()
            found = elifs = 0
        elif token[-1] in "\"'":
            found += 1
            if _is_formatted(token):
                stack += [0] * _open_braces(token, brackets)
        elif token[0] not in "#\n":
            found += 1
            elifs += token == "elif"
        if len(stack) > brackets or found > links or elifs > links:
            return match.start()
    return None


def literals(text: str) -> int:
    """How many string literals follow each other in the text of one constant."""
    return len(_LITERAL.findall(text))


def deep_pattern(text: str) -> int | None:
    """The offset of a ``case`` whose brackets would keep LibCST busy for longer than some seconds.

    An upper bound: a line of prose may begin with this word.
    """
    if "case" not in text:
        return None
    cost = 0
    for header in _CASE.finditer(text):
        depth = 0
        for match in _PATTERN.finditer(text, header.end(), header.end() + _HEADER):
            token = match[0]
            if token in "([{":
                depth += 1
            elif token in ")]}":
                depth -= 1
            elif depth <= 0 and token in ("\n", ":", "if"):
                break
            if depth > 1:
                cost += _PATTERN_FACTOR ** min(depth, 30)
            if cost > _MAX_PATTERN_COST:
                return header.end()
    return None


def _is_formatted(literal: str) -> bool:
    return "{" in literal and literal.lower().startswith(("f", "t", "rf", "fr", "rt", "tr"))


def _open_braces(literal: str, limit: int) -> int:
    """The braces open at the end of a formatted string (one with the same quotes inside ends here too early), or the
    most that are open inside it when they are more than ``limit``."""
    depth = 0
    for brace in _BRACE.finditer(literal):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth > limit:
            return depth
    return max(depth, 0)
