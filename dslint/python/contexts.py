"""`with` statements: context managers of the project run around the body, those of libraries become events."""

from __future__ import annotations

import ast

from dslint.python.events import Alt, Call, Context, Event, Exit, Loop, Node, Seq, Try
from dslint.python.expressions import evaluate
from dslint.python.generators import run_generator
from dslint.python.heap import Outcome, OutOfBudgetError
from dslint.python.invoke import call_method
from dslint.python.machine import Machine
from dslint.python.special import call_special, method_of
from dslint.python.values import OPAQUE, Instance, Value, const, unknown

# Context managers of Python that end an exception.
_SWALLOWS = frozenset({"contextlib.suppress"})


def enter_contexts(m: Machine, node: ast.With | ast.AsyncWith, at: int) -> None:
    """Enter the context managers of a `with` statement from the one at `at` on, and run the body inside."""
    from dslint.python.statements import assign, execute

    if at == len(node.items):
        execute(m, node.body)
        return
    item = node.items[at]
    manager = evaluate(m, item.context_expr)
    if not m.alive:
        return
    atom = manager.single
    if isinstance(atom, Instance) and atom.cls == "builtins.generator" and atom in m.generators:
        _Yielding(m, node, at).run(atom)
        return
    given = _entered(m, manager, item.context_expr)
    tags = _tags(m, item.context_expr, manager)
    if item.optional_vars is not None:
        assign(m, item.optional_vars, given)
    if not m.alive:
        return
    tree = Context(item.context_expr, m.frame.module, manager, Seq(), tags)
    outer, m.events = m.events, tree.body.items
    is_own = any(method_of(m, a, "__exit__") is not None for a in manager.atoms)
    try:
        if is_own or _swallows(m, manager, outer):
            _closed(m, node, at, manager, is_own)
        else:
            enter_contexts(m, node, at + 1)
    except OutOfBudgetError:
        m.give_up(tree, tree.body.items)
        raise
    m.events = outer
    if tree.body.items:
        m.events.append(tree)


def _swallows(m: Machine, manager: Value, events: list[Node]) -> bool:
    """Return whether a context manager of a library ends exceptions of its body."""
    made = {atom.node for atom in manager.atoms if isinstance(atom, Instance)}
    for atom in manager.atoms:
        if isinstance(atom, Instance) and isinstance(atom.node, ast.Call):
            called = atom.node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            if f"contextlib.{name}" in _SWALLOWS:
                return True
    return any(isinstance(e, Event) and e.node in made and e.api in _SWALLOWS for e in events[-8:])


def _closed(m: Machine, node: ast.With | ast.AsyncWith, at: int, manager: Value, is_own: bool) -> None:
    """Run the body; `__exit__` runs on every way out of it, and may end an exception."""
    from dslint.python.exceptional import around

    expression = node.items[at].context_expr

    def final(raised: Value | None) -> bool:
        if not is_own:
            return True
        bits = m.raised_by
        given = [const(None).with_(bits)] * 3
        if raised is not None:
            given = [
                unknown(OPAQUE, "class of an exception", bits),
                raised.with_(bits),
                unknown(OPAQUE, "traceback", bits),
            ]
        result = call_special(m, manager, "__exit__", given, expression)
        return m.alive and (result is None or bool(m.truth(result)[0]))

    inner = Try(expression, m.frame.module, Seq(), [], Seq(), Seq())
    tree = Try(expression, m.frame.module, Seq([inner]), [], Seq(), Seq())

    def body() -> None:
        outer, m.events = m.events, inner.body.items
        enter_contexts(m, node, at + 1)
        m.events = outer

    if around(m, tree, body, final):
        inner.handlers.append(Seq())
    if inner.body.items or tree.final.items:
        m.events.append(tree)


class _Yielding:
    """A `with` statement over a generator: the body runs where it yields, and the rest of it on every way out."""

    def __init__(self, m: Machine, node: ast.With | ast.AsyncWith, at: int) -> None:
        self.m, self.node, self.at = m, node, at
        self.early: list[tuple[str, Outcome]] = []
        self.goes_on = False

    def run(self, atom: Instance) -> None:
        """Run the generator with the body inside."""
        m = self.m
        expression = self.node.items[self.at].context_expr
        run_generator(m, atom, expression, self._body)
        if not self.early or not m.alive:
            return
        frame = m.frame
        for kind, way in self.early:
            leaving = Seq([Exit(kind, way.node or self.node)])
            m.events.append(
                Alt(
                    expression, frame.module, None, m.lanes, m.lanes if self.goes_on else 0, way.control, leaving, Seq()
                )
            )
            if kind == "return":
                frame.returns.append(Outcome(m.store.changes(frame.mark), way.lanes, way.control, way.value, way.node))
            elif frame.loops:
                state = frame.loops[-1]
                out = Outcome(m.store.changes(state.mark), way.lanes, way.control, None, way.node)
                (state.breaks if kind == "break" else state.continues).append(out)
        m.alive = self.goes_on

    def _body(self, value: Value) -> None:
        from dslint.python.statements import assign

        m, frame, item = self.m, self.m.frame, self.node.items[self.at]
        if item.optional_vars is not None:
            assign(m, item.optional_vars, value)
        loop = frame.loops[-1] if frame.loops else None
        returns, frame.returns = frame.returns, []
        kept = (loop.breaks, loop.continues) if loop is not None else ([], [])
        if loop is not None:
            loop.breaks, loop.continues = [], []
        mark, outer, inner = m.store.mark(), m.events, []  # type: ignore[var-annotated]
        m.events = inner
        enter_contexts(m, self.node, self.at + 1)
        m.events = outer
        early = [("return", way) for way in frame.returns]
        if loop is not None:
            early += [("break", way) for way in loop.breaks] + [("continue", way) for way in loop.continues]
            loop.breaks, loop.continues = kept
        frame.returns = returns
        self.goes_on = self.goes_on or m.alive
        if not early:
            m.events += inner
            return
        self.early += early
        self._meet(mark, early, inner)

    def _meet(self, mark: int, early: list[tuple[str, Outcome]], inner: list[Node]) -> None:
        """Go on with the generator: after the body, and after each way that left it early."""
        m = self.m
        here = Outcome(m.store.changes(mark), m.lanes, m.control) if m.alive else None
        m.store.undo(mark)
        m.meet([*([here] if here is not None else []), *(way for _, way in early)], 0)
        body = Seq(inner)
        if any(kind != "return" for kind, _ in early):
            body = Seq([Loop(self.node, m.frame.module, None, 0, body, Seq(), True)])
        m.events.append(Call(self.node, m.frame.module, None, body))


def _tags(m: Machine, node: ast.expr, manager: Value) -> frozenset[str]:
    """Return the tags of the library rows that made the context manager."""
    found: set[str] = set()
    made = {atom.node for atom in manager.atoms if isinstance(atom, Instance)}
    for event in m.events[-8:]:
        if isinstance(event, Event) and (event.node is node or event.node in made):
            found |= event.tags
    for atom in manager.atoms:
        if isinstance(atom, Instance):
            kept = m.store.get((atom, "#tags"))
            if kept is not None and kept.constants:
                found |= set(str(kept.constants[0]).split())
    return frozenset(found)


def _entered(m: Machine, manager: Value, node: ast.expr) -> Value:
    """Return what `with manager as x` gives."""
    found = call_method(m, manager, "__enter__", [], node)
    if found is not None:
        return found
    atom = manager.single
    if isinstance(atom, Instance) and isinstance(atom.cls, str):
        gives = m.store.get((atom, "#gives"))
        if gives is not None:
            return gives
    return manager
