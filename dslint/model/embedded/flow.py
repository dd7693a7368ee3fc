"""Where paths part and meet: branches, loops, ``with``, ``try``, ``match``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dslint.model.embedded.calls import Caller
from dslint.model.embedded.constants import truth_of
from dslint.model.embedded.values import Choice, Hidden, Ref, Value, World, joined
from dslint.model.plan.pyscript import PyScript

_MAX_CHOICES = 8
EXPECTS_FAILURE = ("raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp")
# The state behind a statement, ``None`` where control never gets there.
Path = World | None


@dataclass(slots=True)
class Frame:
    """A function that runs."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    returns: list[tuple[Value, World]] = field(default_factory=list)
    loops: list[list[World]] = field(default_factory=list)


class Flow(Caller):
    """Compound statements. ``silent``: a turn of a loop that only finds out what changes."""

    def __init__(self, script: PyScript) -> None:
        super().__init__(script)
        self.frames = [Frame()]
        self.silent = 0
        self.failing = 0

    def block(self, statements: Iterable[ast.stmt], world: World) -> Path:
        """Run statements one after the other."""
        raise NotImplementedError

    def bind(self, target: ast.expr, found: Value, at: ast.expr) -> None:
        """Give a value to what stands left of ``=``."""
        raise NotImplementedError

    def _do_if(self, node: ast.If) -> Path:
        truth = True if _is_main(node.test) else truth_of(self.value(node.test))
        if truth is not None:
            return self.block(node.body if truth else node.orelse, self.world)
        other = self.world.copy()
        first = self.block(node.body, self.world)
        return self._limited(joined([first, self.block(node.orelse, other)]))

    def _limited(self, world: Path) -> Path:
        for name, value in (world.names if world is not None else {}).items():
            if isinstance(value, Choice) and len(value.refs) > _MAX_CHOICES and world is not None:
                world.names[name] = Hidden()
        return world

    def _do_with(self, node: ast.With) -> Path:
        failing = False
        for item in node.items:
            found = self.value(item.context_expr)
            callee = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
            failing |= callee is not None and self.script.qualified(callee).endswith(EXPECTS_FAILURE)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, found if isinstance(found, Ref) else Hidden(), item.context_expr)
        self.failing += failing
        try:
            return self.block(node.body, self.world)
        finally:
            self.failing -= failing

    _do_asyncwith = _do_with

    def _do_try(self, node: ast.Try) -> Path:
        before = self.world.copy()
        body = self.block(node.body, self.world)
        # An exception may come before, after or in the middle of what the body changes.
        between = joined([before, body.copy() if body is not None else None]) or before
        ends = [self.block(node.orelse, body)] if body is not None else []
        for handler in node.handlers:
            state = between.copy()
            if handler.name:
                state.names[handler.name] = Hidden()
            ends.append(self.block(handler.body, state))
        end = joined(ends)
        if not node.finalbody:
            return end
        return self.block(node.finalbody, end) if end is not None else None

    _do_trystar = _do_try

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, targets: Sequence[ast.expr]) -> Path:
        exits: list[World] = []
        state: Path = self.world
        # What one turn changes, the next one sees: the first turns only find out what changes.
        for turn in range(3):
            if state is None:
                break
            self.silent += turn < 2
            before = state.copy()
            self.world = state
            for target in targets:
                self.bind(target, Hidden(), target)
            self.frames[-1].loops.append([])
            try:
                end = self.block(node.body, state)
            finally:
                left = self.frames[-1].loops.pop()
                self.silent -= turn < 2
            exits += left
            state = joined([before, end, *left])
        return self.block(node.orelse, state) if state is not None else None

    def _do_for(self, node: ast.For | ast.AsyncFor) -> Path:
        self.value(node.iter)
        return self._loop(node, [node.target])

    _do_asyncfor = _do_for

    def _do_while(self, node: ast.While) -> Path:
        self.value(node.test)
        return self._loop(node, [])

    def _do_match(self, node: ast.Match) -> Path:
        self.value(node.subject)
        ends: list[Path] = [self.world.copy()]
        for case in node.cases:
            state = self.world.copy()
            for pattern in ast.walk(case.pattern):
                if isinstance(name := getattr(pattern, "name", None), str):
                    state.names[name] = Hidden()
            ends.append(self.block(case.body, state))
        return joined(ends)


def _is_main(test: ast.expr) -> bool:
    """``if __name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
