"""Numbers that are an option where a command passes it, and are counted by the script where none does."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from dslint.python.events import Event
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.rules.runs import RunQuery
from dslint.rules.training.schedules import OPTIMIZERS
from dslint.rules.training.training import COUNTS


def options_passed(run: RunQuery, derived: Derived, makers: list[Event]) -> list[Piece] | None:
    """Return what the numbers of schedules are where the options in them are passed; `None` where there is none such.

    An option that the command of this run leaves out is none, and neither is one times the micro batches of a step:
    that product counts nothing that happens.
    """
    found: list[Piece] = []
    filled: set[ast.AST] = set()
    for maker in makers:
        numbers = [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name)]
        for option in (part for node in numbers for part in ast.walk(node) if isinstance(part, ast.Attribute)):
            filled |= _filled(run, derived, maker, option)
        found += [(maker.module, node) for node in numbers]
    if not filled or any(COUNTS.search(getattr(part, "attr", "")) for _, node in found for part in ast.walk(node)):
        return None
    return code_behind(derived, found, filled)


def _filled(run: RunQuery, derived: Derived, maker: Event, option: ast.Attribute) -> set[ast.AST]:
    """Return what the script gives to an option that nobody passes, before the schedule is made and after it."""
    launch = run.machine.launch
    if launch is not None and launch.state_of(option.attr) == "left":
        return set()
    scope = derived.scopes(maker.module, maker.node)[0]
    line = int(getattr(maker.node, "lineno", 0))
    guarded = {value for test in _tests_of_none(maker.module, option) for value in _given(test.body, option)}
    later = {value for value in _given([scope], option) if value.lineno > line}
    return guarded | later if guarded else set()


def _tests_of_none(module: Module, option: ast.Attribute) -> Iterator[ast.If]:
    """Yield the tests `if OPTION is None` of a file."""
    name = ast.unparse(option)
    for node in module.nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) in (f"{name} is None", f"not {name}", f"{name} == None"):
            yield node


def _given(nodes: list[ast.stmt] | list[ast.AST], option: ast.Attribute) -> Iterator[ast.expr]:
    """Yield what statements assign to an option."""
    name = ast.unparse(option)
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            yield node.value


def code_behind(derived: Derived, start: list[Piece], left_out: Container[ast.AST] = ()) -> list[Piece]:
    """Return expressions with all that may be behind them, apart from some values and from all other options."""
    pending, found = list(start), dict[Piece, None]()
    while pending:
        piece = pending.pop()
        if piece in found or piece[1] in left_out:
            continue
        found[piece] = None
        for node in _read(piece[1]):
            pending += derived.behind(piece[0], node)
    return list(found)


def _read(piece: ast.AST) -> Iterator[ast.AST]:
    """Yield the names and fields that a piece reads: of `args.steps` not `args`, of a length not what it counts."""
    if isinstance(piece, ast.Call) and getattr(piece.func, "id", "") == "len":
        return
    if isinstance(piece, ast.Attribute) and isinstance(piece.value, ast.Name):
        yield piece
        return
    if isinstance(piece, ast.Name | ast.Attribute):
        yield piece
    for child in ast.iter_child_nodes(piece):
        yield from _read(child)
