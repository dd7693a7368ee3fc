"""In which turns of a loop tests by its index hold: ``(step + 1) % n == 0``, worked out for small numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import product

import libcst as cst

from dslint.model.script.constants import Constants
from dslint.model.script.names import Names
from dslint.model.script.objects.conditions import Condition
from dslint.model.script.tree import Tree

_OPERATIONS: dict[type[cst.CSTNode], Callable[[int, int], int]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Modulo: operator.mod,
}
_COMPARISONS: dict[type[cst.CSTNode], Callable[[int, int], bool]] = {
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
}
_MAX_STEPS = 4
_MAX_OPEN = 6
# Tried where nobody says how many turns make a group.
_SIZES = (2, 3, 4)


class Turns:
    """Tests in the body of one ``for index, item in enumerate(...)`` or ``for index in range(...)``."""

    def __init__(self, tree: Tree, names: Names, constants: Constants, loop: cst.For) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants
        self._loop = loop
        self.index = _index(names, loop)

    @property
    def is_counted(self) -> bool:
        """The loop has an index that starts at zero and that its body leaves alone."""
        if self.index is None:
            return False
        bound = self._names.bindings(self.index, self._loop.body)
        return not any(self._tree.contains(self._loop.body, b.node) for b in bound)

    def divisor(self, conditions: list[Condition]) -> cst.BaseExpression | None:
        """The one number by which the tests divide the index, whatever variables it goes by."""
        found: dict[str, cst.BaseExpression] = {}
        for node in (n for c in conditions for n in self._spread(c.test)):
            if type(node) is cst.BinaryOperation and type(node.operator) is cst.Modulo and self._asks(node.left):
                found.setdefault(self._text(node.right), node.right)
        return next(iter(found.values())) if len(found) == 1 else None

    def sizes(self, divisor: cst.BaseExpression) -> tuple[int, ...]:
        """The values of the divisor that are worth a try: the one that the file states, or some."""
        value = self._constants.value(divisor).get_or(None)
        if isinstance(value, int) and not isinstance(value, bool):
            return (value,) if value > 1 else ()
        return _SIZES

    def both(
        self, ones: list[Condition], others: list[Condition], divisor: cst.BaseExpression, size: int, shift: int = 0
    ) -> list[int]:
        """The turns of a group in which both lists of tests certainly hold, for some answers to what is left open.

        ``shift`` is added to the index for the first list.
        """
        opened = sorted({t for c in (*ones, *others) for t in self._open(c.test, divisor)})
        if len(opened) > _MAX_OPEN:
            return []
        found: set[int] = set()
        for answers in product((True, False), repeat=len(opened)):
            known = dict(zip(opened, answers, strict=True))
            for turn in range(size):
                first = _Reader(self, divisor, size, size + turn + shift, known)
                second = _Reader(self, divisor, size, size + turn, known)
                if all(map(first.holds, ones)) and all(map(second.holds, others)):
                    found.add(turn)
        return sorted(found)

    def _spread(self, node: cst.BaseExpression, steps: int = 0) -> Iterator[cst.CSTNode]:
        """The nodes of an expression and of what its variables were given."""
        for part in self._tree.descendants(node):
            yield part
            value = self.behind(part) if type(part) is cst.Name and steps < _MAX_STEPS else None
            if value is not None:
                yield from self._spread(value, steps + 1)

    def behind(self, node: cst.CSTNode) -> cst.BaseExpression | None:
        """What a variable of the loop was given, in the turn."""
        if type(node) is not cst.Name or node.value == self.index or not self._tree.is_variable(node):
            return None
        value = self._names.single_value(node)
        return value if value is not node else None

    def _root(self, node: cst.BaseExpression) -> cst.BaseExpression:
        for _ in range(_MAX_STEPS):
            value = self.behind(node)
            if not isinstance(value, cst.Name | cst.Attribute | cst.Subscript):
                return node
            node = value
        return node

    def is_divisor(self, node: cst.BaseExpression, divisor: cst.BaseExpression) -> bool:
        """The same number as the divisor, by the same or another name."""
        return self._text(node) == self._text(divisor)

    def _text(self, node: cst.BaseExpression) -> str:
        text = self._tree.text(self._root(node))
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text

    def _asks(self, node: cst.BaseExpression) -> bool:
        """The value depends on the index."""
        return any(type(part) is cst.Name and part.value == self.index for part in self._spread(node))

    def _changes(self, node: cst.BaseExpression) -> bool:
        """The body of the loop gives a variable of the test several values, by tests that may ask for the index."""
        for part in self._spread(node):
            if type(part) is cst.Name:
                found = self._names.bindings(part.value, part)
            else:
                found = self._names.attribute_bindings(part) if type(part) is cst.Attribute else []
            if len(found) > 1 and any(self._tree.contains(self._loop.body, b.node) for b in found):
                return True
        return False

    def _open(self, node: cst.BaseExpression, divisor: cst.BaseExpression, steps: int = 0) -> Iterator[str]:
        """The tests in an expression that say nothing about the index: their answer is the same in every turn."""
        if type(node) is cst.BooleanOperation:
            yield from self._open(node.left, divisor, steps)
            yield from self._open(node.right, divisor, steps)
        elif type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            yield from self._open(node.expression, divisor, steps)
        elif not self._asks(node):
            if not self._changes(node):
                yield self._tree.text(node)
        else:
            value = self.behind(node)
            if value is not None and steps < _MAX_STEPS:
                yield from self._open(value, divisor, steps + 1)


class _Reader:
    """Works a test out for one turn; ``None`` is what nobody knows."""

    def __init__(
        self, turns: Turns, divisor: cst.BaseExpression, size: int, index: int, answers: dict[str, bool]
    ) -> None:
        self._turns = turns
        self._divisor = divisor
        self._size = size
        self._index = index
        self._answers = answers

    def holds(self, condition: Condition) -> bool:
        """The test has the outcome of the condition."""
        value = self._truth(condition.test, 0)
        return value is not None and value == _meant(condition)

    def _truth(self, node: cst.BaseExpression, steps: int) -> bool | None:
        known = self._answers.get(self._turns._tree.text(node))
        if known is not None or steps > _MAX_STEPS:
            return known
        if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            inner = self._truth(node.expression, steps)
            return None if inner is None else not inner
        if type(node) is cst.BooleanOperation:
            sides = (self._truth(node.left, steps), self._truth(node.right, steps))
            ends = type(node.operator) is cst.Or
            if ends in sides:
                return ends
            return None if None in sides else not ends
        if type(node) is cst.Comparison and len(node.comparisons) == 1:
            compared = node.comparisons[0]
            compare = _COMPARISONS.get(type(compared.operator))
            left, right = self._number(node.left, 0), self._number(compared.comparator, 0)
            return None if compare is None or left is None or right is None else compare(left, right)
        value = self._turns.behind(node)
        if value is not None:
            return self._truth(value, steps + 1)
        number = self._number(node, steps)
        return None if number is None else bool(number)

    def _number(self, node: cst.BaseExpression, steps: int) -> int | None:
        if steps > _MAX_STEPS:
            return None
        if type(node) is cst.Integer:
            return int(node.evaluated_value)
        if type(node) is cst.Name and node.value == self._turns.index:
            return self._index
        if self._turns.is_divisor(node, self._divisor):
            return self._size
        if type(node) is cst.BinaryOperation:
            operation = _OPERATIONS.get(type(node.operator))
            left, right = self._number(node.left, steps), self._number(node.right, steps)
            if operation is None or left is None or right is None or (right == 0 and operation is operator.mod):
                return None
            return operation(left, right)
        value = self._turns.behind(node)
        return self._number(value, steps + 1) if value is not None else None


def _meant(condition: Condition) -> bool:
    """The outcome of the test as it is written: the text of a condition for ``x != y`` is ``x == y``."""
    test = condition.test
    if type(test) is cst.Comparison and len(test.comparisons) == 1:
        compared = test.comparisons[0]
        if isinstance(compared.operator, cst.Is | cst.IsNot):
            is_none = isinstance(compared.comparator, cst.Name) and compared.comparator.value == "None"
            return condition.holds == (is_none == isinstance(compared.operator, cst.IsNot))
        return condition.holds != isinstance(compared.operator, cst.NotEqual | cst.NotIn)
    return condition.holds


def _index(names: Names, loop: cst.For) -> str | None:
    """The name that counts the turns from zero on."""
    call = loop.iter
    for _ in range(2):  # ``tqdm(enumerate(loader))``
        name = names.called(call) if isinstance(call, cst.Call) else ""
        if name in ("tqdm", "trange", "progress_bar", "track") and isinstance(call, cst.Call) and call.args:
            call = call.args[0].value
    if not isinstance(call, cst.Call):
        return None
    name = names.called(call)
    target: cst.BaseExpression = loop.target
    if name == "enumerate" and len(call.args) == 1 and isinstance(target, cst.Tuple) and len(target.elements) == 2:
        target = target.elements[0].value
    elif name != "range" or len(call.args) != 1:
        return None
    return target.value if isinstance(target, cst.Name) else None
