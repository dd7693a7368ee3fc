"""Under which tests a node runs: the arms around it and the early exits before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.script.behind import question
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_EXITS = frozenset({"exit", "_exit", "quit", "abort"})
_BLOCKS = (cst.IndentedBlock, cst.SimpleStatementSuite, cst.Module)
# What says under which tests its parts run, and where the search ends.
_DECIDING = frozenset({cst.If, cst.IfExp, cst.While, cst.BooleanOperation, *_BLOCKS, cst.FunctionDef, cst.ClassDef})


@dataclass(frozen=True, slots=True)
class Condition:
    """A test that holds (or does not) where a node runs.

    ``text`` is the test without ``not``; for ``x == "a"`` and ``x in (...)`` ``subject`` and ``value`` are the texts of
    its sides.
    """

    text: str
    holds: bool
    test: cst.BaseExpression
    subject: str = ""
    value: str = ""

    def contradicts(self, other: Condition) -> bool:
        """The two cannot both be true while the test keeps its value."""
        if self.text == other.text:
            return self.holds != other.holds
        return bool(self.subject) and self.holds and other.holds and self.subject == other.subject


class Conditions:
    """The conditions of the nodes of one module. Tests are compared as text: ``args.deepspeed`` in two places is one.

    A test that names a variable which gets another value between the two places is not compared.
    """

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._known: dict[int, tuple[Condition, ...]] = {}

    def of(self, node: cst.CSTNode) -> tuple[Condition, ...]:
        """What holds at a node by the tests of its function, the innermost first."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = tuple(self._collect(node))
        return found

    def excludes(self, one: cst.CSTNode, other: cst.CSTNode, loop: cst.CSTNode | None = None) -> bool:
        """The two stand in opposite arms: no run that reaches one with these values reaches the other.

        With ``loop`` not even in another turn of it.
        """
        loops = (loop,) if loop is not None else ()
        return any(a.contradicts(b) and self._is_same(a, b, loops) for a in self.of(one) for b in self.of(other))

    def implies(self, node: cst.CSTNode, earlier: cst.CSTNode) -> bool:
        """Where ``node`` runs, all tests around ``earlier`` had the outcome that leads there."""
        here = self.of(node)
        return all(any(self._answers(a, b) for b in here) for a in self.of(earlier) if not self._is_around(a, node))

    def decides(self, node: cst.CSTNode, test: cst.BaseExpression) -> bool | None:
        """Whether a test that stood before ``node`` was true, as far as the tests around ``node`` say."""
        asked = list(self._split(test, True))
        here = self.of(node)
        if all(any(self._answers(a, b) for b in here) for a in asked):
            return True
        return False if any(a.contradicts(b) and self._is_same(a, b) for a in asked for b in here) else None

    def _answers(self, asked: Condition, given: Condition) -> bool:
        if not self._is_same(asked, given):
            return False
        if asked.text == given.text:
            return asked.holds == given.holds
        # ``backend == "a"`` says that ``backend == "b"`` is false.
        return not asked.holds and given.holds and bool(asked.subject) and asked.subject == given.subject

    def _is_around(self, condition: Condition, node: cst.CSTNode) -> bool:
        return any(condition.test is c.test and condition.holds == c.holds for c in self.of(node))

    def _is_same(self, one: Condition, other: Condition, loops: tuple[cst.CSTNode, ...] = ()) -> bool:
        """No variable of the test is given another value between the two tests, nor in loops around one of them."""
        if one.test is other.test and not loops:
            return True
        tree = self._tree
        first, last = sorted((one.test, other.test), key=tree.position)
        around = [
            *loops,
            *(p for t, u in ((first, last), (last, first)) for p in tree.loops(t) if not tree.contains(p, u)),
        ]
        start, end = tree.position(first), tree.position(last)
        for node in tree.descendants(one.test):
            if type(node) is cst.Name and not isinstance(tree.parent(node), cst.Attribute):
                bound = [b.node for b in self._names.bindings(node.value, node) if b.kind != "param"]
                if any(start < tree.position(b) < end or any(tree.contains(p, b) for p in around) for b in bound):
                    return False
        return True

    def _collect(self, node: cst.CSTNode) -> Iterator[Condition]:
        inner = node
        for outer in self._tree.parents(node):
            if type(outer) not in _DECIDING:
                inner = outer
                continue
            if type(outer) is cst.If or type(outer) is cst.IfExp:
                if inner is outer.body:
                    yield from self._split(outer.test, True)
                elif inner is outer.orelse:
                    yield from self._split(outer.test, False)
            elif type(outer) is cst.While and inner is outer.body:
                yield from self._split(outer.test, True)
            elif type(outer) is cst.BooleanOperation and inner is outer.right:
                yield from self._split(outer.left, type(outer.operator) is cst.And)
            elif isinstance(outer, _BLOCKS):
                yield from self._exits_before(outer, inner)
            if type(outer) is cst.FunctionDef or type(outer) is cst.ClassDef:
                return
            inner = outer

    def _exits_before(self, block: cst.CSTNode, inner: cst.CSTNode) -> Iterator[Condition]:
        """``if not x: return`` before a node of the same block."""
        for statement in getattr(block, "body", ()):
            if statement is inner:
                return
            if type(statement) is cst.If:
                if ends_elsewhere(statement.body):
                    yield from self._split(statement.test, False)
                elif type(statement.orelse) is cst.Else and ends_elsewhere(statement.orelse.body):
                    yield from self._split(statement.test, True)
            elif type(statement) is cst.SimpleStatementLine:
                for part in statement.body:
                    if type(part) is cst.Assert:
                        yield from self._split(part.test, True)

    def _split(self, test: cst.BaseExpression, holds: bool) -> Iterator[Condition]:
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            yield from self._split(test.expression, not holds)
        elif type(test) is cst.BooleanOperation and isinstance(test.operator, cst.And if holds else cst.Or):
            yield from self._split(test.left, holds)
            yield from self._split(test.right, holds)
        else:
            asked, same = question(self._names, test)
            # Two calls with one text may give two answers: the variable tells which is meant.
            if asked is test or any(isinstance(n, cst.Call) for n in self._tree.descendants(asked)):
                yield self._condition(test, holds)
            else:
                yield from self._split(asked, holds == same)

    def _condition(self, test: cst.BaseExpression, holds: bool) -> Condition:
        if type(test) is cst.Comparison and len(test.comparisons) == 1:
            compared = test.comparisons[0]
            left, right = self._text(test.left), self._text(compared.comparator)
            if isinstance(compared.operator, cst.Is | cst.IsNot) and right == "None":
                # ``x is not None`` and ``x`` are the same question for objects.
                return Condition(left, holds == isinstance(compared.operator, cst.IsNot), test)
            if isinstance(compared.operator, cst.Equal | cst.NotEqual | cst.Is | cst.IsNot):
                same = holds == isinstance(compared.operator, cst.Equal | cst.Is)
                literal = isinstance(compared.comparator, cst.SimpleString | cst.Integer)
                return Condition(f"{left} == {right}", same, test, left if literal else "", right)
            if type(compared.operator) is cst.NotIn:
                return Condition(f"{left} in {right}", not holds, test)
        return Condition(self._text(test), holds, test)

    def _text(self, node: cst.CSTNode) -> str:
        return self._tree.text(node)


def ends_elsewhere(block: cst.CSTNode) -> bool:
    """A block ends by leaving: ``return``, ``raise``, ``continue``, ``break``, ``sys.exit()``."""
    body = getattr(block, "body", ())
    last = body[-1] if body else None
    if type(block) is cst.IndentedBlock and type(last) is cst.SimpleStatementLine:
        last = last.body[-1] if last.body else None
    if type(last) is cst.If:
        return _all_leave(last)
    if type(last) is cst.Expr:
        return type(last.value) is cst.Call and last_name(last.value.func) in _EXITS
    return isinstance(last, cst.Return | cst.Raise | cst.Continue | cst.Break)


def _all_leave(chain: cst.If) -> bool:
    while ends_elsewhere(chain.body):
        if type(chain.orelse) is cst.If:
            chain = chain.orelse
            continue
        return type(chain.orelse) is cst.Else and ends_elsewhere(chain.orelse.body)
    return False
