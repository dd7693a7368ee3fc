"""Sizes of batches. Samplers give all ranks as many items, so that their last batches are shorter alike."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

_BATCH_SIZE = re.compile(r"\.shape\[0\]$|\.size\((?:dim=)?0\)$|\.size\(\)\[0\]$")
# A dimension behind that of the batch.
_DIMENSION = re.compile(r"\.shape\[-?[1-9]\]$|\.size\((?:dim=)?-?[1-9]\)$|\.size\(\)\[-?[1-9]\]$")
_MANY, _MOST_PARTS = 3, 4


def is_batch_size(test: ast.AST) -> bool:
    """Return whether a test asks for the size of a batch: `if x.shape[0] < 4:`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    sides = [ast.unparse(side) for side in (test.left, test.comparators[0])]
    return any(_BATCH_SIZE.search(side) for side in sides) and "0" not in sides


def is_layout(test: ast.AST, behind: Iterable[ast.AST]) -> bool:
    """Return whether a test asks for the form of a batch: `if x.size(1) == 3:`, with what stands behind its name.

    How many views, sentences or channels an item has is no length: all items have as many.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = test.left, test.comparators[0]
    number = right.value if isinstance(right, ast.Constant) else None
    if type(number) is not int or number > _MOST_PARTS:
        return False
    if isinstance(test.ops[0], ast.Eq | ast.NotEq):
        is_form = number >= 1
    else:  # `>= 3` asks for a third part, `> 1` may ask for a row that is long enough
        is_form = number + isinstance(test.ops[0], ast.Gt | ast.LtE) >= _MANY
    sources = behind if isinstance(left, ast.Name) else (left,)
    return is_form and any(_DIMENSION.search(ast.unparse(source)) for source in sources)


def counts_batch_sizes(loop: ast.AST) -> bool:
    """Return whether what a loop asks for grows by batch sizes alone: `while done < n: ...; done += x.shape[0]`."""
    if not isinstance(loop, ast.While):
        return False
    names = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
    added = [
        node.value
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in names
    ]
    parts = [[ast.unparse(n) for n in ast.walk(value) if isinstance(n, ast.expr)] for value in added]
    return bool(parts) and all(any(map(_BATCH_SIZE.search, texts)) for texts in parts)
