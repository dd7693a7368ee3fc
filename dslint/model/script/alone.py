"""First looks at the cheap syntax tree: may a test of this module ask for what only one rank knows?"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from dslint.model.script.marked import defined, ranks_of
from dslint.model.script.quick import Flat, call_name, expression_name

_RANK = re.compile(r"rank|main|master|process_zero|process_index", re.I)
# By a name like these a variable is a loader; ``DataLoader`` under another name is imported by its own.
_LOADER = re.compile(r"loader|^(?:train|data)_?iter", re.I)
_CLOCKS = frozenset({"time", "perf_counter", "monotonic", "now"})
# Clocks, and calls that return a loader among other things.
_SOURCES = _CLOCKS | {"prepare", "initialize"}
_NOT_A_NUMBER = frozenset({"isnan", "isinf", "isfinite"})
_ASKING = _NOT_A_NUMBER | frozenset({"item", "sum", "len", "any", "all", "numel", "count_nonzero"})
_ASKING |= _CLOCKS


_Test = ast.If | ast.While


def asks_alone(nodes: Flat, tests: Sequence[_Test]) -> bool:
    """A loop branches on its data, or something on a NaN, on what some ranks set, or on places of what is not zero.

    ``tests`` are those that count: which decide over what waits for other ranks.
    """
    asks = _sets_on_some(nodes) or _asks_for_nan(nodes) or (_has_own_data(nodes) and _asks_in_loop(nodes, tests))
    return asks or _asks_for_positions(nodes, tests)


def _has_own_data(nodes: Flat) -> bool:
    """Some name is that of a loader or of what makes one, or the clock is read: all that differs between ranks."""
    used = {n.attr for n in nodes.nodes(ast.Attribute)} | {n.id for n in nodes.nodes(ast.Name)}
    renamed = {n.name for n in nodes.nodes(ast.alias) if n.asname}
    called = {call_name(n) for n in nodes.nodes(ast.Call)}
    return any(map(_LOADER.search, used | renamed)) or not _SOURCES.isdisjoint(called | renamed)


def _asks_for_nan(nodes: Flat) -> bool:
    """Something is tested for being a number at all: that of a loss needs no loop over batches in sight."""
    return any(call_name(n) in _NOT_A_NUMBER for n in nodes.nodes(ast.Call))


def _asks_in_loop(nodes: Flat, tests: Sequence[_Test]) -> bool:
    """A test inside a loop asks for a sum, a length, a NaN or the time, or for a variable that holds such an answer."""
    told_here = _ASKING | _defined(nodes)
    asking = {c for c in nodes.nodes(ast.Call) if call_name(c) in told_here}
    if not asking:
        return False
    functions = [nodes.order[at] for at in nodes.places(ast.FunctionDef)]
    holders = {defined(f) for f in functions if any(n in asking for n in nodes.inside(f))}
    asking |= {c for c in nodes.nodes(ast.Call) if call_name(c) in holders}
    told = {
        target.id
        for assign in nodes.nodes(ast.Assign)
        if any(n in asking for n in nodes.inside(assign.value))
        for target in assign.targets
        if isinstance(target, ast.Name)
    }
    counted = {id(test) for test in tests}
    for at in nodes.places(ast.For, ast.While, ast.AsyncFor):
        for node in nodes.order[at : nodes.ends[at]]:
            if isinstance(node, _Test) and id(node) in counted:
                inside = nodes.inside(node.test)
                if any(n in asking or (isinstance(n, ast.Name) and n.id in told) for n in inside):
                    return True
    return False


def _sets_on_some(nodes: Flat) -> bool:
    """A variable that is tested is assigned a call or comparison behind a test of the rank."""
    ranks = ranks_of(nodes)

    def is_by_rank(test: ast.expr) -> bool:
        return _asks_for_rank(nodes, test) and ranks.inside(nodes.place(test))

    for assign in nodes.nodes(ast.Assign):
        choice = next((n for n in nodes.inside(assign.value) if isinstance(n, ast.IfExp)), None)
        if choice is not None and is_by_rank(choice.test) and _is_tested(nodes, assign.targets[0], nodes.order[0]):
            return True
    for node in nodes.nodes(ast.If):
        if not is_by_rank(node.test):
            continue
        for inner in nodes.inside(node):
            target: ast.expr | None = inner.target if isinstance(inner, ast.AugAssign) else None
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call | ast.Compare):
                target = inner.targets[0]
            # What a function does behind its own test of the rank is told from that of others.
            if target is not None and _is_tested(nodes, target, nodes.function(inner)):
                return True
    return False


def _is_tested(nodes: Flat, target: ast.expr, scope: ast.AST) -> bool:
    """A test in a scope asks for what is assigned: for the variable, or for an item of one."""
    start = nodes.place(scope)
    tests = (nodes.order[at] for at in nodes.places(ast.If, ast.While) if start <= at < nodes.ends[start])
    parts = (part for node in tests if isinstance(node, ast.If | ast.While) for part in nodes.inside(node.test))
    if isinstance(target, ast.Subscript):
        name = expression_name(target.value)
        return any(isinstance(part, ast.Subscript) and expression_name(part.value) == name for part in parts)
    return isinstance(target, ast.Name) and any(isinstance(p, ast.Name) and p.id == target.id for p in parts)


def _asks_for_rank(nodes: Flat, test: ast.expr) -> bool:
    """The test, or a variable in it, has a name that speaks of ranks."""
    for node in nodes.inside(test):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        if _RANK.search(name):
            return True
    return False


def _asks_for_positions(nodes: Flat, tests: Sequence[_Test]) -> bool:
    """A test asks for a number, and something has looked for the places of what is not zero."""
    if not any(call_name(c) in ("nonzero", "argwhere") for c in nodes.nodes(ast.Call)):
        return False
    parts = (p for n in tests for p in nodes.inside(n.test))
    return any(isinstance(p, ast.Call) and call_name(p) in ("len", "numel") for p in parts)


def _defined(nodes: Flat) -> set[str]:
    """The functions of the file, and the variables that hold an instance of one of its classes that can be called."""
    functions = {n.name for n in nodes.nodes(ast.FunctionDef)}
    if "__call__" not in functions:
        return functions
    classes = {n.name for n in nodes.nodes(ast.ClassDef)}
    made = (n for n in nodes.nodes(ast.Assign) if isinstance(n.value, ast.Call) and call_name(n.value) in classes)
    return functions | {expression_name(target) for node in made for target in node.targets}
