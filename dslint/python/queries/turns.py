"""In which turns of a loop something happens: tests by the number of the turn, worked out for small groups of turns.

`(step + 1) % n == 0` holds in the last turn of a group of `n`. What a test asks beside is open: its answer is the same
in every turn. What may change from turn to turn and cannot be worked out leaves the whole test unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from dslint.python.events import BREAK, CONTINUE, RETURN, Alt, Call, Exit, Loop, Node, Seq, children
from dslint.python.heap import Choice
from dslint.python.machine import Machine
from dslint.python.operators import BINARY
from dslint.python.source import Module
from dslint.python.turns import is_turn
from dslint.python.values import INPUT, Const, Instance, PerRank, Unknown, Value
from dslint.python.varies import OWN

_MAX_OPEN = 6
_MAX_DEPTH = 12
# Tried where nobody says how many turns make a group.
_SIZES = (2, 3, 4)
_COMPARE: dict[object, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    **{function: function for function in (operator.lt, operator.le, operator.gt, operator.ge)},
}
_EQUALS = (ast.Eq, ast.Is, operator.eq)
_COMPUTES: dict[object, Callable[..., Any]] = dict(BINARY.items())
_COMPUTES.update({function: function for function in BINARY.values()})
_COMPUTES.update({function: function for function in (int, bool, float, max, min, abs)})


@dataclass(frozen=True, slots=True)
class Test:
    """What decides whether something happens: a value that must be true (or false), and the expression that gives it.

    `leaves` are the tests that must not all have that outcome: together they lead out of the turn before.
    """

    value: Value | None
    holds: bool
    module: Module
    node: ast.AST
    leaves: tuple[Test, ...] = ()
    varies: int = 0  # the causes for which ranks may decide differently


class Turns:
    """The turns of one loop."""

    def __init__(self, m: Machine, loop: Loop) -> None:
        self._m = m
        self._loop = loop
        self._bound = _bound(loop.node)
        self._inside = {id(node) for node in ast.walk(loop.node)}

    def tests(self, around: Sequence[Node], target: Node) -> list[Test]:
        """Return what decides in a turn whether something happens; `around` are the nodes that lead to it."""
        found: list[Test] = []
        at = next(number for number, node in enumerate(around) if node is self._loop)
        for parent, child in pairwise([*around[at:], target]):
            for block in children(parent):
                items = _flat(block)
                place = next((number for number, node in enumerate(items) if node is child), None)
                if place is None:
                    continue
                if isinstance(parent, Alt) and parent.test is not None:
                    found.append(
                        Test(parent.test, block is parent.then, parent.module, _asks(parent), varies=parent.varies)
                    )
                for way in (way for node in items[:place] for way in _exits(node)):
                    found.append(Test(None, False, self._loop.module, self._loop.node, tuple(way)))
        return found

    # -- which numbers matter -----------------------------------------------------------------------------------

    def divisor(self, tests: Iterable[Test]) -> object:
        """Return the one number by which tests divide that of the turn; `None` for none and for several."""
        found: dict[object, None] = {}
        for term in (term for test in tests for term in self._terms(test)):
            if isinstance(term, tuple) and len(term) == 2 and term[0] in (ast.Mod, operator.mod):
                parts = term[1]
                if isinstance(parts, tuple) and len(parts) == 2 and self.asks(parts[0]):
                    found[parts[1]] = None
        return next(iter(found)) if len(found) == 1 else None

    def sizes(self, divisor: object) -> tuple[int, ...]:
        """Return the sizes of a group that are worth a try: the one that the code states, or some."""
        if isinstance(divisor, Const):
            return (divisor.value,) if divisor.kind is int and divisor.value > 1 else ()  # type: ignore[operator,return-value]
        is_open = isinstance(divisor, Unknown) and divisor.kind != INPUT
        return _SIZES if divisor is not None and not is_open else ()

    def asks(self, term: object) -> bool:
        """Return whether a number is computed from that of the turn."""
        return any(is_turn(part) and part[1] == self._loop.number for part in self._parts(term))  # type: ignore[index]

    def _terms(self, test: Test) -> Iterator[object]:
        for inner in test.leaves:
            yield from self._terms(inner)
        if test.value is not None:
            yield from self._parts(test.value.number)

    def _parts(self, term: object, depth: int = 0) -> Iterator[object]:
        """Yield a term and all that it is made of, what tests have chosen included."""
        yield term
        choice = self._m.chosen.get(term) if isinstance(term, tuple) and depth < _MAX_DEPTH else None
        if choice is not None:
            for value in (choice.test, choice.first, choice.second):
                yield from self._parts(value.number if value is not None else None, depth + 1)
        elif isinstance(term, tuple | frozenset) and not is_turn(term) and depth < _MAX_DEPTH:
            for part in (term, self._m.computed[term])[1:] if term in self._m.computed else term:
                yield from self._parts(part, depth + 1)

    # -- turns --------------------------------------------------------------------------------------------------

    def both(
        self, ones: Sequence[Test], others: Sequence[Test], divisor: object, size: int, shift: int = 0
    ) -> list[int]:
        """Return the turns of a group in which both lists certainly hold, for some answers to what is left open.

        `shift` is added to the number of the turn for the first list.
        """
        opened: dict[object, None] = {}
        for test in (*ones, *others):
            opened.update(dict.fromkeys(self._open(test, divisor)))
        if len(opened) > _MAX_OPEN:
            return []
        found: set[int] = set()
        for answers in product((True, False), repeat=len(opened)):
            known = dict(zip(opened, answers, strict=True))
            for turn in range(size):
                first = Reader(self, divisor, size, size + turn + shift, known)
                second = Reader(self, divisor, size, size + turn, known)
                if all(map(first.holds, ones)) and all(map(second.holds, others)):
                    found.add(turn)
        return sorted(found)

    def _open(self, test: Test, divisor: object) -> Iterator[object]:
        for inner in test.leaves:
            yield from self._open(inner, divisor)
        if not test.leaves:
            yield from self._open_terms(self.term(test), divisor)

    def term(self, test: Test) -> object:
        """Return what a test asks: its number, or its code where nothing in it changes with the number of the turn."""
        value = test.value
        atom = value.single if value is not None else None
        if isinstance(atom, Const):
            return atom
        is_data = bool(test.varies & OWN) or (isinstance(atom, Instance) and atom.cls == "torch.Tensor")
        number = value.number if value is not None else None
        if number is not None and not (is_data and self._is_opaque(number)):
            return number
        return ("code", ast.dump(test.node)) if is_data or not self._changes(test.node) else None

    def _is_opaque(self, number: object) -> bool:
        """Return whether a number says nothing about the turn."""
        return not self.asks(number) and _compound(number) is None

    def _changes(self, node: ast.AST) -> bool:
        """Return whether the loop may bind something that an expression reads."""
        if id(node) not in self._inside:
            return True
        words = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        words |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        return bool(words & self._bound) or any(isinstance(n, ast.Call) for n in ast.walk(node))

    def _open_terms(self, term: object, divisor: object, depth: int = 0) -> Iterator[object]:
        """Yield the tests in a term that say nothing about the turn."""
        term = self.placed(term)
        if term is None or isinstance(term, Const) or depth > _MAX_DEPTH:
            return
        compound = _compound(term)
        if compound is not None:
            word, inner = compound
            for part in [inner] if word in ("not", "own") else inner:
                yield from self._open_terms(part, divisor, depth + 1)
            return
        choice = self._m.chosen.get(term)
        if choice is not None:
            yield from self._open_terms(self.term(_decides(choice)), divisor, depth + 1)
            for value in (choice.first, choice.second):
                yield from self._open_terms(value.number, divisor, depth + 1)
        elif not self.is_moving(term) and not any(part == divisor for part in self._parts(term)):
            yield term
        else:
            for part in self._parts(term):
                if part is not term and isinstance(part, tuple) and part in self._m.chosen:
                    yield from self._open_terms(part, divisor, depth + 1)

    def placed(self, term: object) -> object:
        """Return the code of a test of which only the place is known, where nothing in it changes; else `None`."""
        if not (isinstance(term, tuple) and len(term) == 4 and all(isinstance(part, int) for part in term)):
            return term
        node = self._m.placed.get(term)
        return ("code", ast.dump(node)) if node is not None and not self._changes(node) else None

    def is_moving(self, term: object) -> bool:
        """Return whether something may have another answer in another turn."""
        return term is None or any(map(self._is_moving, self._parts(term)))

    def _is_moving(self, part: object) -> bool:
        if isinstance(part, Unknown):
            return part.kind != INPUT
        if is_turn(part) or isinstance(part, PerRank):
            return True
        if isinstance(part, tuple) and len(part) == 3 and all(isinstance(each, int) for each in part):
            return bool(part[2] > self._loop.since)  # made in a turn
        return isinstance(part, tuple) and part[:1] in (("met",), ("called",))


class Reader:
    """Works tests out for one turn; `None` is what nobody knows."""

    def __init__(self, turns: Turns, divisor: object, size: int, index: int, answers: Mapping[object, bool]) -> None:
        self._turns = turns
        self._divisor = divisor
        self._size = size
        self._index = index
        self._answers = answers

    def holds(self, test: Test) -> bool:
        """Return whether a test certainly has its outcome."""
        if test.leaves:
            known = [self.truth(self._turns.term(inner)) for inner in test.leaves]
            return any(
                each is not None and each is not inner.holds for each, inner in zip(known, test.leaves, strict=True)
            )
        return self.truth(self._turns.term(test)) is test.holds

    def truth(self, term: object, depth: int = 0) -> bool | None:
        """Return the answer of a test."""
        term = self._turns.placed(term)
        if term is None or depth > _MAX_DEPTH:
            return None
        known = self._answers.get(term)
        if known is not None:
            return known
        compound = _compound(term)
        if compound is not None:
            return self._compound(*compound, depth + 1)
        number = self.number(term, depth + 1)
        return None if number is None else bool(number)

    def _compound(self, word: str, inner: Any, depth: int) -> bool | None:
        if word in ("not", "own"):
            found = self.truth(inner, depth)
            return found if found is None or word == "own" else not found
        sides = [self.truth(part, depth) for part in inner]
        ends = word == "or"
        if ends in sides:
            return ends
        return None if None in sides else not ends

    def number(self, term: object, depth: int = 0) -> Any:
        """Return the value of a term; `None` where it is not known."""
        if term == self._divisor:
            return self._size
        if isinstance(term, Const):
            return term.value
        if depth > _MAX_DEPTH or not isinstance(term, tuple):
            return None
        if is_turn(term):
            return self._index if self._turns.asks(term) else None
        choice = self._turns._m.chosen.get(term)
        if choice is not None:
            side = self.truth(self._turns.term(_decides(choice)), depth + 1)
            return None if side is None else self._value(choice.first if side else choice.second, depth)
        if _compound(term) is not None:
            return self.truth(term, depth)
        if term in self._turns._m.computed:
            return self.number(self._turns._m.computed[term], depth + 1)
        return self._computed(term, depth + 1) if len(term) == 2 else None

    def _value(self, value: Value, depth: int) -> Any:
        atom = value.single
        return atom.value if isinstance(atom, Const) else self.number(value.number, depth + 1)

    def _computed(self, term: tuple[Any, Any], depth: int) -> Any:
        word, inner = term
        parts = tuple(inner) if isinstance(inner, tuple | frozenset) else (inner,)
        numbers = [self.number(part, depth) for part in parts]
        if None in numbers or not all(isinstance(n, int | float) for n in numbers):
            return None
        if word in _EQUALS:
            return len(set(numbers)) == 1
        if word in _COMPARE:
            return _COMPARE[word](*numbers)
        function = _COMPUTES.get(word) if callable(word) else None
        if word is ast.USub:
            function = operator.neg
        try:
            return function(*numbers) if function is not None else None
        except (ArithmeticError, TypeError, ValueError):
            return None


def _compound(term: object) -> tuple[str, Any] | None:
    """Return the word of a formula and what it joins; `None` for any other term."""
    if isinstance(term, tuple) and len(term) == 2 and isinstance(term[0], str) and term[0] in _WORDS:
        return term[0], term[1]
    return None


_WORDS = frozenset({"and", "or", "not", "own"})


def _decides(choice: Choice) -> Test:
    varies = choice.test.varies if choice.test is not None else 0
    return Test(choice.test, True, choice.module, getattr(choice.node, "test", choice.node), varies=varies)


def _asks(alt: Alt) -> ast.AST:
    return alt.asks or _test_of(alt.node)


def _test_of(node: ast.AST) -> ast.AST:
    found = getattr(node, "test", None)
    return found if isinstance(found, ast.AST) else node


def _flat(block: Node) -> list[Node]:
    if not isinstance(block, Seq):
        return [block]
    return [inner for item in block.items for inner in _flat(item)]


def _exits(node: Node, way: tuple[Test, ...] = ()) -> Iterator[list[Test]]:
    """Yield for each exit in a node the tests that lead there; what leaves a loop or a call inside ends there."""
    if isinstance(node, Exit):
        if way and node.kind in (RETURN, BREAK, CONTINUE):
            yield list(way)
    elif isinstance(node, Alt):
        asks = _asks(node)
        for side, holds in ((node.then, True), (node.orelse, False)):
            for item in _flat(side):
                yield from _exits(item, (*way, Test(node.test, holds, node.module, asks, varies=node.varies)))
    elif not isinstance(node, Loop | Call):
        for inner in children(node):
            for item in _flat(inner):
                yield from _exits(item, way)


def _bound(loop: ast.AST) -> set[str]:
    """Return the names and fields that the body of a loop binds."""
    found: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found
