"""Where the nodes of a LibCST module stand: one run of its code generator, up to the node that is asked for.

LibCST's own providers count bytes or lines, visit the whole tree once more and keep an object for each node, which is
several times the cost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import libcst as cst
from libcst._nodes.internal import CodegenState

# The code generator recurses a few frames per level of nesting.
_RECURSION = 20_000
Places = dict[cst.CSTNode, tuple[int, int]]


def places(module: cst.Module, until: cst.CSTNode | None = None) -> Places:
    """Start and end of each node, in code points, without the whitespace and comments that it owns.

    ``until``: the nodes behind this one, and those around it, are left out.
    """
    state = _State(module, until)
    with _deep():
        module._codegen(state)  # what stands before a place that is too deep has its span
    return state.found


@dataclass(frozen=True, slots=True)
class Code:
    """What the code generator writes from the start of a statement up to the end of a node, and where that stands."""

    text: str
    start: int
    end: int


def code_up_to(module: cst.Module, statement: cst.CSTNode, node: cst.CSTNode, indent: str) -> Code | None:
    """The code of a statement that stands behind ``indent``, up to one of its nodes; ``None`` when it is not found."""
    state = _Writer(module, node)
    state.indent_tokens.append(indent)
    with _deep():
        statement._codegen(state)
    place, start = state.found.get(node), state.starts.get(statement)
    if place is None or start is None:
        return None
    return Code("".join(state.tokens)[start : place[1]], place[0] - start, place[1] - start)


@contextmanager
def _deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        yield
    except (_Found, RecursionError):
        pass
    finally:
        sys.setrecursionlimit(limit)


class _Found(Exception):  # noqa: N818 - no error
    """The rest of the module is of no interest."""


class _State(CodegenState):
    """Counts what the code generator would write."""

    def __init__(self, module: cst.Module, until: cst.CSTNode | None) -> None:
        super().__init__(default_indent=module.default_indent, default_newline=module.default_newline)
        self.position = 0
        self.found: Places = {}
        self._starts: list[int] = []
        self._until = until

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.position += len(token)

    def add_token(self, value: str) -> None:
        self.position += len(value)
        if not self.tokens:
            self.tokens.append(value)  # a module without any gets a line break

    def before_codegen(self, node: cst.CSTNode) -> None:  # noqa: ARG002
        self._starts.append(self.position)

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._starts.pop()
        if node not in self.found:
            self.found[node] = (start, self.position)
        if node is self._until:
            raise _Found

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Place:
        return _Place(self, node, start_node, end_node)


class _Writer(_State):
    """Keeps the code, and where nodes start whose end does not matter."""

    def __init__(self, module: cst.Module, until: cst.CSTNode) -> None:
        super().__init__(module, until)
        self.starts: dict[cst.CSTNode, int] = {}

    def add_indent_tokens(self) -> None:
        super().add_indent_tokens()
        self.tokens += self.indent_tokens

    def add_token(self, value: str) -> None:
        self.position += len(value)
        self.tokens.append(value)

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Place:
        self.starts.setdefault(node, self.position)
        return super().record_syntactic_position(node, start_node=start_node, end_node=end_node)


class _Place:
    """A node without what it owns around it: from here, or from another node, to here, or to another node."""

    __slots__ = ("_end", "_from", "_node", "_start", "_state")

    def __init__(
        self, state: _State, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None
    ) -> None:
        self._state = state
        self._node = node
        self._start = start_node
        self._end = end_node

    def __enter__(self) -> None:
        self._from = self._state.position

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is not None:
            return
        found = self._state.found
        start = found[self._start][0] if self._start is not None else self._from
        found[self._node] = (start, found[self._end][1] if self._end is not None else self._state.position)
