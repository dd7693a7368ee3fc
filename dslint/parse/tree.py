"""One iterative walk over the nodes that carry meaning, and the order it leaves behind."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar, cast

import libcst as cst

# Fields that hold layout: whitespace, punctuation, brackets. Operators are read from their owner.
_LAYOUT = frozenset(
    {
        *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "comma", "trailing_comma", "semicolon", "equal"),
        *(
            "dot",
            "colon",
            "first_colon",
            "second_colon",
            "operator",
            "separator",
            "newline",
            "asynchronous",
            "relative",
        ),
        *("leading_lines", "lines_after_decorators", "leading_whitespace", "trailing_whitespace", "header", "footer"),
        *("indent", "posonly_ind", "star", "conversion", "start", "end", "type_parameters", "encoding"),
        *("default_indent", "default_newline", "has_trailing_newline"),
    }
)
# ``value`` is the text of these, not a node.
_LEAVES = (cst.Name, cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.FormattedStringText)
# Children in the order of the source where LibCST declares them in another one.
_ORDER: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.FunctionDef: ("decorators", "name", "params", "returns", "body"),
    cst.ClassDef: ("decorators", "name", "bases", "keywords", "body"),
    cst.ExceptHandler: ("type", "name", "body"),
    cst.IfExp: ("body", "test", "orelse"),
    cst.Param: ("name", "annotation", "default"),
    cst.Arg: ("keyword", "value"),
    cst.AnnAssign: ("target", "annotation", "value"),
    cst.Parameters: ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg"),
}
SCOPES = (
    cst.Module,
    cst.FunctionDef,
    cst.ClassDef,
    cst.Lambda,
    cst.ListComp,
    cst.SetComp,
    cst.DictComp,
    cst.GeneratorExp,
)
_SCOPES = frozenset(SCOPES)
Loop = cst.For | cst.While

# Node types are compared by identity throughout: LibCST's classes are abstract base classes, whose ``isinstance``
# runs Python code, and no parsed tree holds instances of subclasses.
_PLAIN = frozenset({str, bool, int, type(None), cst.MaybeSentinel})
_OWN_BODY: frozenset[type[cst.CSTNode]] = frozenset({cst.FunctionDef, cst.Lambda, cst.ClassDef})
_children: dict[type[cst.CSTNode], tuple[str, ...]] = {}
_readers: dict[type[Any], Callable[[cst.CSTNode], Iterable[Any]]] = {}
Node = TypeVar("Node", bound=cst.CSTNode)


def child_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The names of the fields of a node type that may hold nodes with meaning, in source order."""
    found = _children.get(kind)
    if found is None:
        if issubclass(kind, _LEAVES):
            found = ()
        else:
            names = (f.name for f in fields(kind))
            found = _ORDER.get(kind) or tuple(n for n in names if n not in _LAYOUT and not n.startswith("whitespace"))
        _children[kind] = found
    return found


def _reader(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], Iterable[Any]]:
    """What reads the fields of a node type that may hold nodes with meaning, the last one first."""
    names = child_fields(kind)[::-1]
    found: Callable[[cst.CSTNode], Iterable[Any]]
    if len(names) > 1:
        found = attrgetter(*names)
    else:
        found = (lambda node: (getattr(node, names[0]),)) if names else (lambda _: ())
    _readers[kind] = found
    return found


def _inside(scope: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Decorators, bases and the return annotation stand at a definition, not in its scope."""
    if type(scope) is cst.FunctionDef:
        return child is scope.body or child is scope.params
    return child is scope.body if type(scope) is cst.ClassDef else True


class Tree:
    """The nodes of a module in source order, with their parents.

    ``order[i]`` is a node, ``ends[i]`` the index after its last descendant, so that the descendants of a node are
    a slice. Nodes are looked up by identity.
    """

    def __init__(self, module: cst.Module) -> None:
        self.module = module
        self.order: list[cst.CSTNode] = []
        self.ends: list[int] = []
        self._index: dict[int, int] = {}
        self._parents: list[int] = []
        self._texts: dict[int, str] = {}
        self._record()
        by_type: defaultdict[type[cst.CSTNode], list[int]] = defaultdict(list)
        for at, kind in enumerate(map(type, self.order)):
            by_type[kind].append(at)
        self._by_type = dict(by_type)

    def _record(self) -> None:
        order, parents, index = self.order, self._parents, self._index
        stack: list[tuple[cst.CSTNode, int]] = [(self.module, -1)]
        pop, push, plain, known = stack.pop, stack.append, _PLAIN, _readers
        while stack:
            node, parent = pop()
            at = len(order)
            order.append(node)
            parents.append(parent)
            index[id(node)] = at
            kind: type[object] = type(node)
            if kind is cst.Name:
                continue  # nearly half of all nodes
            read = known.get(kind) or _reader(type(node))
            for value in read(node):
                kind = type(value)
                if kind in plain:
                    continue
                if kind is list or kind is tuple:
                    for item in reversed(value):
                        push((item, at))
                else:
                    push((value, at))
        ends = list(range(1, len(order) + 1))
        for at in range(len(order) - 1, 0, -1):
            above = parents[at]
            if ends[above] < ends[at]:
                ends[above] = ends[at]
        self.ends = ends

    def every(self, kind: type[Node]) -> list[Node]:
        """All nodes of exactly this type, in source order."""
        return [cast(Node, self.order[at]) for at in self._by_type.get(kind, ())]

    def some(self, *kinds: type[cst.CSTNode]) -> list[cst.CSTNode]:
        """All nodes of exactly these types, in source order."""
        return [self.order[at] for at in self.positions(*kinds)]

    def positions(self, *kinds: type[cst.CSTNode]) -> list[int]:
        """The places of all nodes of exactly these types, in source order."""
        return sorted(at for kind in kinds for at in self._by_type.get(kind, ()))

    def text(self, node: cst.CSTNode) -> str:
        """The source text of a node without the space around it; the code generator runs once for each."""
        if id(node) not in self._index:
            return self.module.code_for_node(node).strip()
        found = self._texts.get(id(node))
        if found is None:
            found = self._texts[id(node)] = self.module.code_for_node(node).strip()
        return found

    def position(self, node: cst.CSTNode) -> int:
        """The place of a node in source order."""
        return self._index[id(node)]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around a node; ``None`` for the module and for nodes of another tree."""
        at = self._index.get(id(node))
        if at is None or at == 0:
            return None
        return self.order[self._parents[at]]

    def scope(self, node: cst.CSTNode) -> cst.CSTNode:
        """The module, function, class or comprehension whose names a node sees first."""
        order, parents = self.order, self._parents
        inner, skip = node, False
        at = self._index.get(id(node), 0)
        while at > 0:
            at = parents[at]
            outer = order[at]
            kind = type(outer)
            if kind in _SCOPES:
                if _inside(outer, inner):
                    if not skip:
                        return outer
                    skip = False
            elif kind is cst.Param and inner is not getattr(outer, "name", None):
                skip = True  # defaults and annotations are evaluated outside of the function
            inner = outer
        return self.module

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, the nearest first."""
        at = self._index.get(id(node), 0)
        while at > 0:
            at = self._parents[at]
            yield self.order[at]

    def descendants(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """A node and everything inside it, in source order."""
        at = self._index[id(node)]
        return self.order[at : self.ends[at]]

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """``inner`` is ``outer`` or inside it."""
        at = self._index[id(outer)]
        return at <= self._index.get(id(inner), -1) < self.ends[at]

    def own_nodes(self, function: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes that run when the body of a function (or module, or loop) runs: not those of inner functions."""
        at = self._index[id(function)] + 1
        end = self.ends[at - 1]
        while at < end:
            node = self.order[at]
            yield node
            at = self.ends[at] if type(node) in _OWN_BODY else at + 1

    def own(self, function: cst.CSTNode, kind: type[Node]) -> list[Node]:
        """The :meth:`own_nodes` of exactly this type, at the price of those alone."""
        at = self._index[id(function)]
        found = self._inside(at, kind)
        if not found:
            return []
        inner = sorted(q for body in _OWN_BODY for q in self._inside(at, body))
        edge, passed, own = at, 0, []
        for place in found:
            while passed < len(inner) and inner[passed] < place:
                if inner[passed] >= edge:  # else it stands in one that was left out
                    edge = self.ends[inner[passed]]
                passed += 1
            if place >= edge:
                own.append(cast(Node, self.order[place]))
        return own

    def _inside(self, at: int, kind: type[cst.CSTNode]) -> list[int]:
        places = self._by_type.get(kind, [])
        return places[bisect_right(places, at) : bisect_left(places, self.ends[at])]

    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> cst.CSTNode | None:
        """The nearest node of these types around a node."""
        return next((p for p in self.parents(node) if type(p) in kinds), None)

    def always_before(self, node: cst.CSTNode, use: cst.CSTNode) -> bool:
        """Every way to a use passes an earlier node: its block, or one around its ``with`` statements, holds both."""
        block = self.enclosing(node, cst.IndentedBlock, cst.Module)
        while block is not None and not self.contains(block, use):
            outer = self.parent(block)
            if type(outer) is not cst.With:
                return False
            block = self.enclosing(outer, cst.IndentedBlock, cst.Module)
        return block is not None

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The function whose body (or header) holds a node."""
        found = self.enclosing(node, cst.FunctionDef, cst.ClassDef)
        return found if isinstance(found, cst.FunctionDef) else None

    def is_variable(self, name: cst.Name) -> bool:
        """Not the ``b`` of ``a.b`` or of ``f(b=1)``."""
        parent = self.parent(name)
        return not (
            (isinstance(parent, cst.Attribute) and parent.attr is name)
            or (isinstance(parent, cst.Arg) and parent.keyword is name)
        )

    def loops(self, node: cst.CSTNode) -> tuple[Loop, ...]:
        """The loops of the same function that repeat a node, the innermost first."""
        found: list[Loop] = []
        inner = node
        for outer in self.parents(node):
            if type(outer) in _OWN_BODY:
                break
            # The iterable of a ``for`` and the ``else`` arm run once.
            if (isinstance(outer, cst.For) and inner in (outer.body, outer.target)) or (
                isinstance(outer, cst.While) and inner in (outer.body, outer.test)
            ):
                found.append(outer)
            inner = outer
        return tuple(found)


def block_of_one_turn(loop: cst.While) -> list[cst.BaseStatement] | None:
    """The statements of ``while True: ...; break`` before the ``break``, where nothing else ends or repeats a turn."""
    body = list(loop.body.body) if isinstance(loop.body, cst.IndentedBlock) else []
    last = body[-1] if body else None
    is_break = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[0], cst.Break)
    endless = isinstance(loop.test, cst.Name) and loop.test.value == "True"
    return body[:-1] if endless and is_break and not any(map(_jumps, body[:-1])) else None


def _jumps(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Break | cst.Continue):
        return True
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.BaseExpression):
        return False
    return any(map(_jumps, node.children))
