"""What one of two compared ranks knows about the tests on its way."""

from __future__ import annotations

from typing import Protocol

import libcst as cst


class Side(Protocol):
    """One of the two that are compared: what it knows about tests.

    ``told``: grows by each answer that another of the ranks may not have got.
    """

    told: int

    def decide(self, test: cst.BaseExpression) -> bool | None:
        """Whether the test is true; ``None`` when it is not known, but the same on both sides."""

    def is_split(self, test: cst.BaseExpression) -> bool:
        """The test came, or may have come, out differently on some other rank."""

    def equals(self, subject: cst.BaseExpression, number: int) -> bool | None:
        """Whether a ``match`` subject has this value."""

    def is_rank(self, node: cst.BaseExpression, /) -> bool:
        """The expression is the rank of the process."""

    def runs(self, function: cst.FunctionDef) -> bool | None:
        """Whether a decorator lets this side in; ``None`` without such a decorator."""
