"""`match` statements."""

from __future__ import annotations

import ast

from dslint.python import attributes, subscripts
from dslint.python.arithmetic import truth_value
from dslint.python.comparisons import compared
from dslint.python.events import Alt, Seq
from dslint.python.expressions import evaluate
from dslint.python.machine import Machine
from dslint.python.values import OPAQUE, Tuple, Unknown, Value, const, unknown


def match_statement(m: Machine, node: ast.Match) -> None:
    """Run a `match` statement: its cases are tested one after the other."""
    subject = evaluate(m, node.subject)
    if m.alive:
        _case(m, node, subject, 0)


def _case(m: Machine, node: ast.Match, subject: Value, at: int) -> None:
    from dslint.python.statements import execute

    if at == len(node.cases):
        return
    case = node.cases[at]
    test = _matches(m, case.pattern, subject)
    true, false, varies = m.truth(test)
    alt = Alt(case.pattern, m.frame.module, test, true, false, varies, Seq(), Seq())

    def then() -> None:
        _capture(m, case.pattern, subject)
        if case.guard is None:
            execute(m, case.body)
            return
        guard = evaluate(m, case.guard)
        yes, no, bits = m.truth(guard)
        inner = Alt(case.guard, m.frame.module, guard, yes, no, bits, Seq(), Seq())
        m.branch(inner, lambda: execute(m, case.body), lambda: _case(m, node, subject, at + 1), guard.number)
        if inner.then.items or inner.orelse.items:
            m.events.append(inner)

    m.branch(alt, then, lambda: _case(m, node, subject, at + 1), test.number)
    if alt.then.items or alt.orelse.items:
        m.events.append(alt)


def _unknown(m: Machine, subject: Value) -> Value:
    atom = Unknown(OPAQUE, "whether a pattern matches", "builtins.bool")
    return Value(frozenset((atom,)), m.varies(subject))


def _matches(m: Machine, pattern: ast.pattern, subject: Value) -> Value:
    if isinstance(pattern, ast.MatchValue):
        return compared(m, ast.Eq, subject, evaluate(m, pattern.value), pattern)
    if isinstance(pattern, ast.MatchSingleton):
        return compared(m, ast.Is, subject, const(pattern.value), pattern)
    if isinstance(pattern, ast.MatchAs):
        return const(True) if pattern.pattern is None else _matches(m, pattern.pattern, subject)
    if isinstance(pattern, ast.MatchOr):
        found = [_matches(m, part, subject) for part in pattern.patterns]
        constants = [value.constants for value in found]
        if any(c == (True,) for c in constants):
            return const(True)
        if all(c == (False,) for c in constants):
            return const(False)
        if len(found) == 1:
            return truth_value(m, found[0])
    if isinstance(pattern, ast.MatchSequence) and isinstance(subject.single, Tuple):
        star = any(isinstance(p, ast.MatchStar) for p in pattern.patterns)
        count = len(subject.single.items)
        if len(pattern.patterns) - star > count or (not star and len(pattern.patterns) != count):
            return const(False)
    return _unknown(m, subject)


def _capture(m: Machine, pattern: ast.pattern, subject: Value) -> None:
    """Bind the names of a pattern that matches."""
    from dslint.python.statements import store_name

    if isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            _capture(m, pattern.pattern, subject)
        if pattern.name:
            store_name(m, pattern.name, subject)
    elif isinstance(pattern, ast.MatchSequence):
        star = next((at for at, p in enumerate(pattern.patterns) if isinstance(p, ast.MatchStar)), None)
        values = subscripts.unpacked(m, subject, len(pattern.patterns), star, pattern)
        for part, value in zip(pattern.patterns, values, strict=True):
            if isinstance(part, ast.MatchStar):
                if part.name:
                    store_name(m, part.name, value)
            else:
                _capture(m, part, value)
    elif isinstance(pattern, ast.MatchMapping):
        for key, part in zip(pattern.keys, pattern.patterns, strict=True):
            _capture(m, part, subscripts.item(m, subject, evaluate(m, key), pattern))
        if pattern.rest:
            store_name(m, pattern.rest, m.thing(pattern, "rest of a mapping", (subject,)))
    elif isinstance(pattern, ast.MatchClass):
        for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            _capture(m, part, attributes.read(m, subject, name, pattern))
        for part in pattern.patterns:
            _capture(m, part, unknown(OPAQUE, "positional part of a class pattern", m.varies(subject)))
    elif isinstance(pattern, ast.MatchOr):
        for part in pattern.patterns:
            _capture(m, part, subject)
