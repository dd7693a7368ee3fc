"""The words and operators of ``[ ]`` and ``[[ ]]`` as a tree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.parse.shelllex import UnfinishedWordError, simple_command, word_end

UNARY = re.compile(r"-[a-zA-Z]")
BINARY = frozenset({"=", "==", "!=", "=~", "-eq", "-ne", "-lt", "-gt", "-le", "-ge", "<", ">", "-nt", "-ot", "-ef"})


@dataclass(frozen=True, slots=True)
class Part:
    """``kind``: ``and``, ``or``, ``not`` of ``parts``, or a test of raw ``words``."""

    kind: str
    words: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


class UnreadableTestError(Exception):
    """The text is no test that can be read."""


def read_test(text: str) -> Part:
    """The tree of ``[ ... ]``, ``test ...`` or ``[[ ... ]]``.

    Raises:
        UnreadableTestError: the text is none.
    """
    try:
        if text.startswith("[["):
            return _Parser(_tokens(text[2:].rstrip().removesuffix("]]")), "&&", "||", {"(", ")"}).all()
        command = simple_command(text, 0)
    except UnfinishedWordError:
        raise UnreadableTestError from None
    words = [text[w.start : w.end] for w in command.words]
    if words[:1] == ["["]:
        if words[-1] != "]":
            raise UnreadableTestError
        words.pop()
    return _Parser(words[1:], "-a", "-o", {"\\(", "\\)"}).all()


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        blank = re.compile(r"(?:\s|\\\n)+").match(text, at)
        if blank:
            at = blank.end()
            continue
        operator = re.compile(r"&&|\|\||[()<>]|!(?=\s)").match(text, at)
        if tokens[-1:] == ["=~"]:
            # Brackets and bars belong to the expression.
            end = re.compile(r"(?:[^\s\\]|\\.)+").match(text, at)
            end_at = end.end() if end else at
        else:
            end_at = operator.end() if operator else word_end(text, at)
        if end_at == at:
            raise UnreadableTestError
        tokens.append(text[at:end_at])
        at = end_at
    return tokens


class _Parser:
    """Precedence climbing: or, and, not, a test."""

    def __init__(self, tokens: list[str], conjunction: str, disjunction: str, brackets: set[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.conjunction, self.disjunction = conjunction, disjunction
        self.opening, self.closing = sorted(brackets)
        self.depth = 0

    def all(self) -> Part:
        if not self.tokens:
            return Part("test", ())
        part = self._either()
        if self.at != len(self.tokens):
            raise UnreadableTestError
        return part

    def _peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def _either(self) -> Part:
        parts = [self._both()]
        while self._peek() == self.disjunction:
            self.at += 1
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Part("or", (), tuple(parts))

    def _both(self) -> Part:
        parts = [self._not()]
        while self._peek() == self.conjunction:
            self.at += 1
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Part("and", (), tuple(parts))

    def _not(self) -> Part:
        self.depth += 1
        if self.depth > 20:
            raise UnreadableTestError
        try:
            if self._peek() == "!" and self._peek(1) not in BINARY | {""}:
                self.at += 1
                return Part("not", (), (self._not(),))
            if self._peek() == self.opening and self._peek(1) not in BINARY:
                self.at += 1
                part = self._either()
                if self._peek() != self.closing:
                    raise UnreadableTestError
                self.at += 1
                return part
            return self._test()
        finally:
            self.depth -= 1

    def _test(self) -> Part:
        ends = ("", self.conjunction, self.disjunction, self.closing)
        first, second, third = self._peek(), self._peek(1), self._peek(2)
        if first in ends:
            raise UnreadableTestError
        count = 3 if second in BINARY and third else 2 if UNARY.fullmatch(first) and second not in ends else 1
        words = tuple(self.tokens[self.at : self.at + count])
        self.at += count
        return Part("test", words)
