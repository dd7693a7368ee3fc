"""Schedules whose numbers count steps of the optimizer, where a step takes several micro batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event, Loop
from dslint.python.queries.derived import Derived, Piece
from dslint.rules.training.filledoptions import code_behind
from dslint.rules.training.loopcounts import ends_of
from dslint.rules.training.schedules import OPTIMIZERS
from dslint.rules.training.training import counts, last_name

_DIVIDES = ast.Div | ast.FloorDiv
_LENGTHS = ("num_training_steps", "T_max", "total_steps", "total_iters", "max_steps", "steps_per_epoch")


def counts_updates(derived: Derived, maker: Event, loops: list[Loop], size: int | None) -> str:
    """Return why the numbers of a schedule certainly count steps of the optimizer; empty where nobody says so.

    They are divided by the micro batches of a step, or they are the limit of the steps that one of the loops counts.
    """
    numbers = [node for name, node in maker.nodes.items() if not OPTIMIZERS.search(name)]
    pieces = code_behind(derived, [(maker.module, node) for node in numbers])
    if any(_is_multiplied(node) for _, node in pieces):
        return ""
    if any(_is_divided(node, size) for _, node in pieces):
        return "its length is divided by them"
    lengths = [node for name, node in maker.nodes.items() if name in _LENGTHS]
    behind = code_behind(derived, [(maker.module, node) for node in lengths])
    return "its length is the limit of the steps" if any(_is_limit(loop, behind) for loop in loops) else ""


def _is_multiplied(piece: ast.AST) -> bool:
    """Return whether a number is made larger by the micro batches of a step."""
    products = (n for n in ast.walk(piece) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult))
    for product in products:
        if any(counts(part) for part in (product.left, product.right)) and not _is_rounded(piece, product):
            return True
    return False


def _is_rounded(piece: ast.AST, product: ast.BinOp) -> bool:
    """Return whether a product is a divisor: `length // (batch_size * accumulation)`."""
    divisors = (n.right for n in ast.walk(piece) if isinstance(n, ast.BinOp) and isinstance(n.op, _DIVIDES))
    return any(product is inner for divisor in divisors for inner in ast.walk(divisor))


def _is_divided(piece: ast.AST, size: int | None) -> bool:
    """Return whether a number is divided by the micro batches of a step, by name or as the number that they are."""
    for node in ast.walk(piece):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVIDES):
            parts = [part for part in ast.walk(node.right) if isinstance(part, ast.Name | ast.Attribute)]
            is_known = isinstance(node.right, ast.Constant) and size is not None and node.right.value == size > 1
            if is_known or counts(node.right) or any(counts(part) for part in parts):
                return True
    return False


def _is_limit(loop: Loop, lengths: list[Piece]) -> bool:
    """Return whether a length is where the loop ends by a number that grows in the turns of a step only."""
    words = {last_name(node) for _, node in lengths if isinstance(node, ast.Name | ast.Attribute)} - {""}
    for test in ends_of(loop):
        for part in ast.walk(test):
            if isinstance(part, ast.Compare) and len(part.comparators) == 1:
                sides = [last_name(part.left), last_name(part.comparators[0])]
                others = [name for name in sides if name and name not in words]
                if len(others) == 1 and words & {*sides} and _grows_with_steps(loop, others[0]):
                    return True
    return False


def _grows_with_steps(loop: Loop, counter: str) -> bool:
    """Return whether a loop adds 1 to a name, and only where gradients are put together."""
    added = [
        node for node in ast.walk(loop.node) if isinstance(node, ast.AugAssign) and last_name(node.target) == counter
    ]
    return bool(added) and all(any(map(_asks_for_sync, _tests_around(loop, node))) for node in added)


def _asks_for_sync(test: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "sync_gradients" for part in ast.walk(test)) or any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) and counts(part.right) for part in ast.walk(test)
    )


def _tests_around(loop: Loop, node: ast.AST) -> Iterator[ast.AST]:
    parents = loop.module.parents
    inner, outer = node, parents.get(node)
    while outer is not None and inner is not loop.node:
        if isinstance(outer, ast.If) and inner in outer.body:
            yield outer.test
        inner, outer = outer, parents.get(outer)
