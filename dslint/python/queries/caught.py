"""Exceptions that one rank catches, and how it goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import RAISE, Alt, Call, Context, Event, Exit, Loop, Node, Seq, Try, children

# What all ranks meet together: the end of the data, a key of the user, the surroundings.
_SHARED = frozenset({
    *("StopIteration", "StopAsyncIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit", "NotImplementedError"),
    *("ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "FileNotFoundError", "PermissionError"),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Caught:
    """A handler of a `try`, which `ends` or goes on: `around` are the nodes around it, outermost first."""

    node: Try
    handler: ast.ExceptHandler
    block: Seq
    around: tuple[Node, ...]
    ends: bool

    @property
    def is_repeated(self) -> bool:
        """Return whether a loop around makes a next turn."""
        return any(isinstance(node, Loop) for node in self.around)


def handlers(tree: Seq) -> Iterator[Caught]:
    """Yield the handlers of exceptions that one rank may meet alone."""
    pending: list[tuple[Node, tuple[Node, ...]]] = [(tree, ())]
    seen: set[int] = set()
    expected: set[int] = set()
    while pending:
        node, around = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Seq):
            # A `try` that comes to its end is the failure: a test expects the exception, on every rank.
            expected |= {
                id(n) for at, n in enumerate(node.items) if isinstance(n, Try) and _raises(node.items[at + 1 :])
            }
        if isinstance(node, Try) and id(node) not in expected and not _ends(node.orelse):
            for handler, block in zip(getattr(node.node, "handlers", ()), node.handlers, strict=False):
                if _is_own(handler.type):
                    yield Caught(node, handler, block, around, _ends(block))
        if not isinstance(node, Event):
            inner = around if isinstance(node, Seq) else (*around, node)
            pending.extend((child, inner) for child in reversed(children(node)))


def _is_own(kind: ast.expr | None) -> bool:
    parts = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(part is None or ast.unparse(part).rpartition(".")[2] not in _SHARED for part in parts)


def _raises(rest: list[Node]) -> bool:
    return bool(rest) and isinstance(rest[0], Exit) and rest[0].kind == RAISE


def _ends(block: Seq) -> bool:
    """Return whether every way through a block raises, or ends the process."""
    for node in block.items:
        if isinstance(node, Exit):
            return node.kind == RAISE
        if isinstance(node, Alt) and _ends(node.then) and _ends(node.orelse):
            return True
        if isinstance(node, Call | Context) and _ends(node.body):
            return True
        if isinstance(node, Seq) and _ends(node):
            return True
    return False
