"""Consecutive parts of a list, ``data[rank * share : (rank + 1) * share]``, and whether the share is rounded up."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.ranks.rankvalues import RankValues


class Shares:
    """Recognises the beginning of such a part in one module."""

    def __init__(self, names: Names, ranks: RankValues) -> None:
        self._names = names
        self._ranks = ranks

    def rounded_up(self, start: cst.BaseExpression) -> cst.BaseExpression | None:
        """The share of ``rank * share`` when it is ``ceil(n / world_size)``: the last ranks get fewer items, or none.

        ``None`` for other starts and for ``n // world_size``, which gives every rank the same number.
        """
        start = self._names.single_value(start) or start
        if not (isinstance(start, cst.BinaryOperation) and isinstance(start.operator, cst.Multiply)):
            return None
        for rank, share in ((start.left, start.right), (start.right, start.left)):
            value = self._names.single_value(share) or share
            if self._ranks.is_rank(rank) and self._is_rounded_up(value):
                return value
        return None

    def _is_rounded_up(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Call):
            name = self._names.called(node)
            if name == "int" and len(node.args) == 1:
                return self._is_rounded_up(node.args[0].value)
            inner = node.args[0].value if name == "ceil" and len(node.args) == 1 else None
            return isinstance(inner, cst.BinaryOperation) and self._is_share(inner, cst.Divide)
        if isinstance(node, cst.UnaryOperation):  # ``-(-n // world_size)``
            inner = node.expression
            return isinstance(inner, cst.BinaryOperation) and self._is_share(inner, cst.FloorDivide)
        if not isinstance(node, cst.BinaryOperation):
            return False
        if isinstance(node.operator, cst.Add):  # ``n // world_size + 1``
            left = node.left
            return number_of(node.right) == 1 and isinstance(left, cst.BinaryOperation) and self._is_share(left)
        # ``(n + world_size - 1) // world_size``
        filled = isinstance(node.left, cst.BinaryOperation) and isinstance(node.left.operator, cst.Subtract)
        return filled and self._is_share(node, cst.FloorDivide)

    def _is_share(self, node: cst.BinaryOperation, kind: type[cst.BaseBinaryOp] = cst.FloorDivide) -> bool:
        return isinstance(node.operator, kind) and self._ranks.is_world_size(node.right)
