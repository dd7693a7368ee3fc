"""The question behind a test: a variable that was assigned a comparison asks what the comparison asks."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names

_MAX_STEPS = 4
_FLAGS = ("True", "False")
# What may stand around an assignment that runs whenever its block does.
_STRAIGHT = (cst.AssignTarget, cst.Assign, cst.AnnAssign, cst.SimpleStatementLine, cst.IndentedBlock)


def is_flag(node: cst.BaseExpression | None) -> bool:
    """``True`` or ``False``."""
    return isinstance(node, cst.Name) and node.value in _FLAGS


def question(names: Names, test: cst.BaseExpression) -> tuple[cst.BaseExpression, bool]:
    """The expression that decides over a test, and whether the test holds when the expression does.

    Behind ``chosen = rank == 0``, ``chosen = True if rank == 0 else False``, ``chosen = False; if rank == 0: chosen =
    True``, ``(chosen := rank == 0)``, ``(rank == 0) is True`` and ``bool(rank == 0)`` stands ``rank == 0``. The test
    itself where nothing else is known to stand behind it.
    """
    holds = True
    for _ in range(_MAX_STEPS):
        inner, same = _step(names, test)
        if inner is None:
            break
        test, holds = inner, holds == same
    return test, holds


def _step(names: Names, test: cst.BaseExpression) -> tuple[cst.BaseExpression | None, bool]:
    if isinstance(test, cst.NamedExpr):
        return test.value, True
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression, False
    if isinstance(test, cst.IfExp):
        return _of_choice(test.test, test.body, test.orelse)
    if isinstance(test, cst.Call):
        plain = len(test.args) == 1 and not test.args[0].star and names.qualified(test.func) == "bool"
        return (test.args[0].value, True) if plain else (None, True)
    if isinstance(test, cst.Comparison):
        return _of_comparison(test)
    return _of_variable(names, test)


def _of_choice(test: cst.BaseExpression, yes: cst.CSTNode, no: cst.CSTNode) -> tuple[cst.BaseExpression | None, bool]:
    told = (yes.value, no.value) if isinstance(yes, cst.Name) and isinstance(no, cst.Name) else ("", "")
    return (test, told == _FLAGS) if sorted(told) == sorted(_FLAGS) else (None, True)


def _of_comparison(test: cst.Comparison) -> tuple[cst.BaseExpression | None, bool]:
    """``is_main is True``; what is compared with ``==`` must be a test itself, since ``2 == True`` is false."""
    if len(test.comparisons) != 1 or not isinstance(test.left, cst.Comparison | cst.BooleanOperation | cst.Name):
        return None, True
    operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
    if not is_flag(other) or not isinstance(operator, cst.Is | cst.IsNot | cst.Equal | cst.NotEqual):
        return None, True
    says_true = isinstance(other, cst.Name) and other.value == "True"
    return test.left, says_true == isinstance(operator, cst.Is | cst.Equal)


def _of_variable(names: Names, test: cst.BaseExpression) -> tuple[cst.BaseExpression | None, bool]:
    value = names.single_value(test) if isinstance(test, cst.Name | cst.Attribute) else None
    tree = names.tree
    if value is not None and tree.function(value) is tree.function(test) and tree.position(value) > tree.position(test):
        return None, True  # the test asks for what was there before
    if value is not None:
        return (None, True) if is_flag(value) or isinstance(value, cst.Name) else (value, True)
    if not isinstance(test, cst.Name):
        return None, True
    found = names.bindings(test.value, test)
    if len(found) != 2 or not all(b.kind == "assign" and is_flag(b.value) for b in found):
        return None, True
    first, last = sorted(found, key=lambda b: tree.position(b.node))
    if tree.position(last.node) > tree.position(test):
        return None, True
    chosen = _only_assigned_in(names, last)
    if chosen is None or first.value is None or last.value is None:
        return None, True
    if isinstance(chosen, cst.If) and chosen.orelse is None and not names.tree.contains(chosen, first.node):
        return _of_choice(chosen.test, last.value, first.value)
    branch = _only_assigned_in(names, first)
    if isinstance(branch, cst.If) and branch.orelse is chosen:
        return _of_choice(branch.test, first.value, last.value)
    return None, True


def tests_of_change(names: Names, first: Binding, last: Binding, use: cst.Name) -> list[cst.BaseExpression]:
    """``serves = True``; ``if rank > 0: serves = False``: all tests that must hold for the last of two values.

    Nothing where something else may keep a run from it, or the first does not always stand before the use.
    :func:`question` names the nearest of the tests alone: what the variable asks, whatever else must hold.
    """
    tree = names.tree
    told = {node.value for node in (first.value, last.value) if isinstance(node, cst.Name)}
    if first.kind != "assign" or last.kind != "assign" or told != set(_FLAGS):
        return []
    if not tree.always_before(first.node, use) or not tree.position(last.node) < tree.position(use):
        return []
    block = tree.enclosing(first.node, cst.IndentedBlock, cst.Module)
    tests: list[cst.BaseExpression] = []
    for outer in tree.parents(last.node):
        if outer is block:
            break
        if type(outer) is cst.If and tree.contains(outer.body, last.node):
            tests.append(outer.test)
        elif not isinstance(outer, _STRAIGHT):
            return []
    return tests


def _only_assigned_in(names: Names, binding: Binding) -> cst.If | cst.Else | None:
    """The branch whose own statements hold the assignment."""
    tree = names.tree
    line = tree.enclosing(binding.node, cst.SimpleStatementLine)
    block = tree.parent(line) if line is not None else None
    owner = tree.parent(block) if isinstance(block, cst.IndentedBlock) else None
    return owner if isinstance(owner, cst.If | cst.Else) else None


def atoms(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The parts of a test between ``and``, ``or`` and ``not``."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return atoms(test.expression)
    if isinstance(test, cst.BooleanOperation):
        return [*atoms(test.left), *atoms(test.right)]
    return [test]


def wording(names: Names, test: cst.BaseExpression) -> str:
    """The text of a test, of the question behind each part of it, and of the functions of the file that it calls."""
    texts, pending, seen = [], atoms(test), set[int]()
    while pending and len(seen) < _MAX_STEPS * 4:
        node = pending.pop(0)
        seen.add(id(node))
        texts.append(names.tree.module.code_for_node(node))
        function = names.local_function(node) if isinstance(node, cst.Call) else None
        if function is not None:
            texts.append(names.tree.module.code_for_node(function.body))
        pending += [part for part in atoms(question(names, node)[0]) if id(part) not in seen]
    return "\n".join(texts)


def with_callees(names: Names, node: cst.CSTNode, steps: int = 2) -> Iterator[cst.CSTNode]:
    """A node and all nodes inside it, and those of the functions of the file that it calls."""
    for part in names.tree.descendants(node):
        yield part
        function = names.local_function(part) if steps and isinstance(part, cst.Call) else None
        if function is not None:
            yield from with_callees(names, function.body, steps - 1)
