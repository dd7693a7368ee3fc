"""The value of an expression, with what its calls do to the dicts they are given."""

from __future__ import annotations

import ast
from dataclasses import replace

from dslint.model.embedded import constants
from dslint.model.embedded.constants import truth_of
from dslint.model.embedded.values import (
    Choice,
    Dict,
    Hidden,
    Items,
    Known,
    Member,
    Ref,
    Value,
    World,
    hide,
    joined,
)
from dslint.model.plan.pyscript import PyScript

_DEEP = 12


class Evaluator:
    """Expressions of one module. The statements are :class:`~dslint.model.embedded.execute.Executor`'s."""

    def __init__(self, script: PyScript) -> None:
        self.script = script
        self.world = World()
        self._numbers = 0

    def new(self, state: Dict) -> Ref:
        """A dict of its own."""
        self._numbers += 1
        self.world.heap[self._numbers] = state
        return Ref(self._numbers)

    def value(self, node: ast.expr | None) -> Value:
        """The value of an expression."""
        handler = getattr(self, f"_{type(node).__name__.lower()}", None) if node is not None else None
        if handler is not None:
            found: Value = handler(node)
            return found
        if node is not None:
            self._children(node)
        return Hidden()

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.world.lose(self.value(child)) if isinstance(node, ast.Await | ast.Yield) else self.value(child)
            elif isinstance(child, ast.comprehension):
                self._children(child)

    def _constant(self, node: ast.Constant) -> Value:
        return constants.constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        found = self.world.names.get(node.id) or self.world.top.get(node.id) or Hidden()
        # Somebody may append to a list that has a name.
        return Hidden() if isinstance(found, Items) and not self.world.refs(found) else found

    def _attribute(self, node: ast.Attribute) -> Value:
        dotted = dotted_name(node)
        if not dotted:
            self.value(node.value)
            return Hidden()
        return self.world.names.get(dotted) or self.world.top.get(dotted) or Hidden()

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        found = self.value(node.value)
        self.world.names[node.target.id] = found
        return found

    def _subscript(self, node: ast.Subscript) -> Value:
        owner, key = self.value(node.value), self.value(node.slice)
        if isinstance(owner, Ref) and isinstance(key, Known):
            state = self.world.heap[owner.number]
            member = state.members.get(str(key.value))
            return member.value if member is not None and not state.is_lost else Hidden()
        if isinstance(owner, Items) and isinstance(key, Known) and isinstance(key.value, int):
            return owner.items[key.value] if -len(owner.items) <= key.value < len(owner.items) else Hidden()
        return Hidden()

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.BitOr) and isinstance(left, Ref) and isinstance(right, Ref):
            copy = self.copy_of(left)
            self.update(copy, self.world.heap[right.number])
            return copy
        return constants.binary(node, left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        return constants.unary(node, self.value(node.operand))

    def _compare(self, node: ast.Compare) -> Value:
        return constants.compared(node, [self.value(node.left), *map(self.value, node.comparators)])

    def _boolop(self, node: ast.BoolOp) -> Value:
        values = [self.value(v) for v in node.values]
        truths = [truth_of(v) for v in values]
        ends = isinstance(node.op, ast.Or)
        for value, truth in zip(values[:-1], truths, strict=False):
            if truth is None:
                return Hidden()
            if truth is ends:
                return value
        return values[-1]

    def _ifexp(self, node: ast.IfExp) -> Value:
        truth = truth_of(self.value(node.test))
        if truth is not None:
            return self.value(node.body if truth else node.orelse)
        before = self.world.copy()
        first = self.value(node.body)
        after, self.world = self.world, before
        second = self.value(node.orelse)
        both = joined([after, self.world])
        self.world = both if both is not None else self.world
        refs = [r for v in (first, second) for r in ((v,) if isinstance(v, Ref) else ())]
        return (
            Choice(tuple(refs))
            if len(refs) == 2
            else constants.merged(first, second) or Hidden("it depends on a condition")
        )

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for part in node.values:
            plain = isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            found = self.value(inner)
            parts.append(found if plain or isinstance(part, ast.Constant) else Hidden())
        return constants.formatted(parts)

    def _sequence(self, node: ast.List | ast.Tuple) -> Value:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            self._children(node)
            return Hidden()
        return Items(tuple(self.value(item) for item in node.elts))

    _list = _tuple = _sequence

    def _starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def _lambda(self, _: ast.Lambda) -> Value:
        return Hidden()

    def _dict(self, node: ast.Dict) -> Value:
        members: dict[str, Member] = {}
        doubled: list[tuple[str, ast.expr, ast.expr]] = []
        written: dict[str, ast.expr] = {}  # ``{**base, "key": 1}`` replaces a key on purpose
        state = Dict(node, members)
        for key, at in zip(node.keys, node.values, strict=True):
            found = self.value(at)
            if key is None:
                state = self._unpacked(state, found)
                members = dict(state.members)
                written = {k: w for k, w in written.items() if members[k].key is w}
                continue
            name = self.value(key)
            if not isinstance(name, Known) or not isinstance(name.value, str):
                state = replace(state, is_open=True)
                continue
            members.pop(name.value, None)
            first = written.get(name.value)
            if isinstance(first, ast.Constant) and isinstance(key, ast.Constant):
                doubled.append((name.value, first, key))
            written[name.value] = key
            members[name.value] = Member(found, key, at, in_display=isinstance(key, ast.Constant))
            state = replace(state, members=members)
        return self.new(replace(state, members=members, doubled=tuple(doubled)))

    def _unpacked(self, state: Dict, more: Value) -> Dict:
        """``**more`` inside a display."""
        other = self.world.heap.get(more.number) if isinstance(more, Ref) else None
        if other is None or other.is_lost:
            return hide(state)
        members = {k: m for k, m in state.members.items() if k not in other.members}
        merged = replace(state, members={**members, **other.members})
        return hide(merged) if other.is_open else merged

    def copy_of(self, ref: Ref) -> Ref:
        """A copy that shares the dicts inside, as ``dict(x)`` does, and keeps its places."""
        return self.new(self.world.heap[ref.number])

    def deep_copy_of(self, ref: Ref, depth: int = 0) -> Value:
        """A copy all the way down."""
        if depth > _DEEP:
            return Hidden()
        state = self.world.heap[ref.number]
        members = {
            k: replace(m, value=self.deep_copy_of(m.value, depth + 1) if isinstance(m.value, Ref) else _alone(m.value))
            for k, m in state.members.items()
        }
        return self.new(replace(state, members=members))

    def update(self, ref: Ref, other: Dict) -> None:
        """``dict.update``."""
        state = self.world.heap[ref.number]
        if other.is_lost:
            self.world.lose(ref)
            return
        members = {**state.members, **other.members}
        merged = replace(state, members=members)
        self.world.heap[ref.number] = hide(merged) if other.is_open else merged


def dotted_name(node: ast.expr) -> str:
    """``self.config`` for an attribute of a name, else empty."""
    is_plain = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return f"{node.value.id}.{node.attr}" if is_plain else ""  # type: ignore[attr-defined]


def _alone(value: Value) -> Value:
    """A copied list or choice of dicts is not followed any further."""
    return Hidden() if isinstance(value, Choice | Items) and any(True for _ in World().refs(value)) else value
