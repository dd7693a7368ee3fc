"""What a test of a script results in: known, or a choice between the ways that it may go."""

from __future__ import annotations

import operator
import posixpath
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

from dslint.core.source import Location
from dslint.model.shell.arith import evaluate
from dslint.model.shell.flow.choices import (
    MAX_WORLDS,
    UNSET,
    Arm,
    Choice,
    Fork,
    ForkNeededError,
    Rule,
    Unknown,
    World,
    two_arms,
)
from dslint.model.shell.flow.patterns import found, is_literal, matches
from dslint.model.shell.flow.syntax import Part, UnreadableTestError, read_test
from dslint.model.shell.flow.trees import tree_of
from dslint.model.shell.pieces import UnknownWordError, Value
from dslint.model.shell.scope import Scope
from dslint.model.shell.words import expand, expand_assignment

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-gt": operator.gt,
    "-le": operator.le,
    "-ge": operator.ge,
}
NAMES = re.compile(r"\$\{?[#!]?(\w+|[@*#?!$-])")
# What is another one each time that it is asked: output of commands, files, status, random numbers.
_CHANGES = re.compile(r"\$\((?!\()|`|\$\{?[?!$]|\$\{?(?:RANDOM|SECONDS|EPOCH\w*|LINENO|REPLY)\b|<\(")
# ``${X:-}`` guards against ``set -u`` and gives no default.
EMPTY_DEFAULT = re.compile(r"\$\{(\w+):?-(?:\"\"|'')?\}")
_OF_NAME = re.compile(r"\"?\$(?:\{(\w+)(?::?\+\w+)?\}|(\w+))\"?")
_MAX_TEXT = 80
_OF_FILES = frozenset({"-e", "-f", "-d", "-r", "-s", "-a"})


class Test:
    """One test at one place of the walk. ``assumed``: names that an arm gives a default, so that nobody set them."""

    def __init__(self, text: str, place: Location, scope: Scope, assumed: Collection[str] = ()) -> None:
        self.text = text
        self.place = place
        self.scope = scope
        self.assumed = assumed
        self.has_default = False
        self.token = object()

    def tree(self) -> Any:
        """The result, or a choice between the ways that the test may go."""
        try:
            part = None if self.text.startswith("((") else _read(self.text)
        except UnreadableTestError:
            return self.whole()
        body = self.text[2:].rstrip().removesuffix("))")
        compute = (lambda world: self._arithmetic(body, world)) if part is None else lambda w: self._part(part, w)
        tree = tree_of(compute, self.scope.here(), MAX_WORLDS)
        if tree is None or isinstance(tree, Unknown):
            return self.whole()
        if self.has_default and isinstance(tree, bool):
            # Unless the environment says something else, it goes this way.
            names = tuple(NAMES.findall(self.text)) + tuple(re.findall(r"[A-Za-z_]\w*", body) if part is None else ())
            return Choice(Fork(two_arms(self.place, self._short(self.text)), 0 if tree else 1, names), (True, False))
        return tree

    def whole(self) -> Any:
        """A choice on the test as it stands."""
        return Choice(Fork(two_arms(self.place, self._short(self.text))), (True, False))

    def _short(self, text: str) -> str:
        line = " ".join(text.replace("\\\n", " ").split())
        return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 4] + " ..."

    def _part(self, part: Part, world: World) -> bool:
        if part.kind == "not":
            return not self._part(part.parts[0], world)
        if part.kind != "test":
            stop = part.kind == "or"
            return next((stop for p in part.parts if self._part(p, world) is stop), not stop)
        words = part.words
        if not words:
            return False
        if len(words) == 1:
            return not self._is_empty(words[0], world)
        if len(words) == 2:
            return self._unary(words[0], words[1], world)
        return self._binary(words[0], words[1], words[2], world)

    # -- Atoms -----------------------------------------------------------------------------------------------------

    def _unary(self, flag: str, raw: str, world: World) -> bool:
        if flag in ("-z", "-n"):
            if self._vanishes(raw, world):
                return True  # ``[ -n ]`` asks whether the text ``-n`` is empty
            return self._is_empty(raw, world) is (flag == "-z")
        if flag in _OF_FILES and self._is_there(raw, world):
            return True
        if flag == "-v" and raw.isidentifier():
            held = self.scope.held(raw, world)
            if held is UNSET and self.scope.is_without(raw):
                return False
            if isinstance(held, Value) or (held is UNSET and self._assumes(raw)):
                self.has_default |= held is UNSET
                return isinstance(held, Value)
        return self._ask(f"{flag} {raw}", world, once=flag != "-v", names=(raw,))

    def _is_there(self, raw: str, world: World) -> bool:
        """The path leads to something now; what does not may still be made before the test."""
        try:
            path = self._text(raw, world)
        except ForkNeededError:
            raise
        except UnknownWordError:
            return False
        cwd = self.scope.cwd
        is_known = path.startswith("/") or not cwd.is_unknown
        return bool(path) and is_known and self.scope.flow.is_there(posixpath.join(cwd.get_or(""), path))

    def _vanishes(self, raw: str, world: World) -> bool:
        """The word is certain to become none at all."""
        if self.text.startswith("[[") or not raw.startswith("$"):
            return False
        lookup = self._lookup(world)
        try:
            return not expand(raw, lookup) and not lookup.has_default
        except ForkNeededError:
            raise
        except UnknownWordError:
            return False

    def _is_empty(self, raw: str, world: World) -> bool:
        if self._vanishes(raw, world):
            return True
        try:
            return not self._text(raw, world)
        except ForkNeededError:
            raise
        except UnknownWordError:
            match = _OF_NAME.fullmatch(raw)
            name = (match[1] or match[2]) if match else ""
            if name and self._assumes(name):
                held = self.scope.held(name, world)
                if held is UNSET or (isinstance(held, Unknown) and held.is_input):
                    self.has_default = True
                    return True
            return self._is_one_of(f"${name}" if name else raw, "", world)

    def _assumes(self, name: str) -> bool:
        return name in self.assumed and not self.scope.open

    def _binary(self, left: str, sign: str, right: str, world: World) -> bool:
        double = self.text.startswith("[[")
        if sign in ("=", "==", "!="):
            return self._equal(left, right, double, world) is (sign != "!=")
        if sign in _COMPARE:
            return self._numbers(left, sign, right, world)
        if sign == "=~" and "$" not in right.removesuffix("$"):
            try:
                return found(right, self._text(left, world))
            except ForkNeededError:
                raise
            except UnknownWordError:
                pass
        return self._ask(f"{left} {sign} {right}", world, once=sign in ("-nt", "-ot", "-ef"))

    def _equal(self, left: str, right: str, double: bool, world: World) -> bool:
        if right in ('""', "''"):
            return self._is_empty(left, world)
        try:
            text = self._text(left, world)
            return matches(right, text, self._lookup(world)) if double else text == self._text(right, world)
        except ForkNeededError:
            raise
        except UnknownWordError:
            pass
        try:
            literal = self._text(right, world) if is_literal(right) or not double else None
        except UnknownWordError:
            literal = None
        if literal is None:
            return self._ask(f"{left} == {right}", world)
        return self._is_one_of(left, literal, world)

    def _numbers(self, left: str, sign: str, right: str, world: World) -> bool:
        try:
            texts = [self._text(left, world).strip(), self._text(right, world).strip()]
        except ForkNeededError:
            raise
        except UnknownWordError:
            return self._ask(f"{left} {sign} {right}", world)
        if not all(re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", t) for t in texts):
            return self._ask(f"{left} {sign} {right}", world)
        return _COMPARE[sign](int(texts[0]), int(texts[1]))

    def _arithmetic(self, body: str, world: World) -> bool:
        lookup = self._lookup(world)
        try:
            return truth(body, lambda name: lookup.read(name).text)
        except ForkNeededError:
            raise
        except (UnknownWordError, RecursionError):
            return self._ask(body, world, names=re.findall(r"[A-Za-z_]\w*", body))
        finally:
            self.has_default |= lookup.has_default

    # -- Words and forks -------------------------------------------------------------------------------------------

    def _lookup(self, world: World) -> Any:
        return self.scope.lookup(world)

    def _text(self, raw: str, world: World) -> str:
        lookup = self._lookup(world)
        try:
            if self.text.startswith("[["):
                return expand_assignment(raw, lookup)
            words = expand(raw, lookup)
        finally:
            self.has_default |= lookup.has_default
        if len(words) != 1:
            # ``[ $X = a ]`` with an empty X is another test, or an error.
            raise UnknownWordError
        return words[0]

    @staticmethod
    def plain(raw: str) -> str:
        """``"${X}"`` and ``$X`` are the same question."""
        return re.sub(r"\$\{(\w+)\}", r"$\1", raw.replace('"', ""))

    def key_of(self, text: str, world: World, names: Collection[str] = ()) -> object:
        """What a test asks: the same text on unchanged variables is the same question."""
        held = [self._identity(n, world) for n in dict.fromkeys([*NAMES.findall(text), *names])]
        return (re.sub(r"\s+", " ", text), *held)

    def _identity(self, name: str, world: World) -> object:
        held = self.scope.held("@" if name in ("#", "*") else name, world)
        if isinstance(held, Value):
            return name, held.text, held.items
        return name, self.scope.epoch if held is UNSET else held

    def _is_one_of(self, raw: str, literal: str, world: World) -> bool:
        """Whether an unknown text is this one: a fork that says something about the text."""
        plain = self.plain(raw)
        if _CHANGES.search(raw):
            return self._ask(f'{raw} = "{literal}"', world)
        subject = self.key_of(plain, world)
        name = plain[1:] if re.fullmatch(r"\$\w+", plain) else ""
        rule = Rule(subject, frozenset({literal}), name=name)

        def arms() -> tuple[Arm, ...]:
            said = literal or "empty"
            text = f"[ {raw} = {literal} ]" if literal else f"[ -z {raw} ]"
            return two_arms(self.place, text, (f"`{plain}` is {said}", f"`{plain}` is not {said}"), rule)

        return world.arm(self.scope.flow.fork(("is", subject, literal), arms)) == 0

    def _ask(self, text: str, world: World, once: bool = False, names: Collection[str] = ()) -> bool:
        """The way that an unknown test went; ``once``: the next time it may go another way."""
        key = self.key_of(text, world, names)
        if once or _CHANGES.search(text):
            key = (self.token, text)
        left, right = ("((", "))") if self.text.startswith("((") else ("[", "]")
        short = self._short(f"{left} {text.strip()} {right}")
        return world.arm(self.scope.flow.fork(key, lambda: two_arms(self.place, short))) == 0


@lru_cache(maxsize=512)
def _read(text: str) -> Part:
    """The tree of a test; a script asks the same thing again and again.

    Raises:
        UnreadableTestError: the text is none.
    """
    return read_test(EMPTY_DEFAULT.sub(r"${\1}", text))


def truth(body: str, read: Callable[[str], str]) -> bool:
    """Whether an arithmetic expression is not 0.

    Raises:
        UnknownWordError: nobody can say.
    """
    return number(body, read) != 0


def number(expression: str, read: Callable[[str], str]) -> int:
    """The value of an arithmetic expression.

    Raises:
        UnknownWordError: nobody can say.
    """
    value = evaluate(expression, read)
    if value is None:
        raise UnknownWordError
    return value
