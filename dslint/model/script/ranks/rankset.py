"""Sets of ranks, and what comparing the rank or the world size with a number says."""

from __future__ import annotations

from enum import Enum

import libcst as cst


class Ranks(Enum):
    """A set of ranks, as coarse as the rules need it.

    ``MAIN``: rank 0 (of the job or of each node). ``OTHERS``: all but that one. ``SOME``: one or several others, not
    all of them (``rank == 3``). ``ALL``: no restriction is known. ``NONE``: no rank of a distributed run ("not
    distributed" tests).
    """

    ALL = "all"
    MAIN = "main"
    OTHERS = "others"
    SOME = "some"
    NONE = "none"

    def __and__(self, other: Ranks) -> Ranks:
        """The ranks in both sets."""
        if self is other or other is Ranks.ALL:
            return self
        if self is Ranks.ALL:
            return other
        return Ranks.SOME if {self, other} == {Ranks.OTHERS, Ranks.SOME} else Ranks.NONE

    def __or__(self, other: Ranks) -> Ranks:
        """The ranks in either set."""
        if self is other or other is Ranks.NONE:
            return self
        if self is Ranks.NONE:
            return other
        return Ranks.OTHERS if {self, other} == {Ranks.OTHERS, Ranks.SOME} else Ranks.ALL

    @property
    def is_partial(self) -> bool:
        """Some ranks of a distributed run are outside."""
        return self in (Ranks.MAIN, Ranks.OTHERS, Ranks.SOME)


Branches = tuple[Ranks, Ranks]  # the ranks for which a test is true, and those for which it is false
ANY: Branches = (Ranks.ALL, Ranks.ALL)
MAIN: Branches = (Ranks.MAIN, Ranks.OTHERS)
DISTRIBUTED: Branches = (Ranks.ALL, Ranks.NONE)
SINGLE: Branches = (Ranks.NONE, Ranks.ALL)

SIGNS: dict[type[cst.BaseCompOp], str] = {
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.Is: "==",
    cst.IsNot: "!=",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BY_NUMBER: dict[tuple[str, int], Branches] = {
    ("==", 0): MAIN,
    ("<=", 0): MAIN,
    ("<", 1): MAIN,
    ("!=", 0): (Ranks.OTHERS, Ranks.MAIN),
    (">", 0): (Ranks.OTHERS, Ranks.MAIN),
    (">=", 1): (Ranks.OTHERS, Ranks.MAIN),
    # ``-1`` means "not distributed", the same on every rank.
    ("==", -1): SINGLE,
    ("<", 0): SINGLE,
    ("<=", -1): SINGLE,
    ("!=", -1): DISTRIBUTED,
    (">=", 0): DISTRIBUTED,
    (">", -1): DISTRIBUTED,
}
SOME: Branches = (Ranks.SOME, Ranks.ALL)
_BY_OTHER_NUMBER: dict[str, Branches] = {
    "==": SOME,
    ">": SOME,
    ">=": SOME,
    "!=": (Ranks.ALL, Ranks.SOME),
    "<": (Ranks.ALL, Ranks.SOME),
    "<=": (Ranks.ALL, Ranks.SOME),
}
_BY_SIZE: dict[tuple[str, int], Branches] = {
    (">", 1): DISTRIBUTED,
    (">=", 2): DISTRIBUTED,
    ("!=", 1): DISTRIBUTED,
    ("==", 1): SINGLE,
    ("<=", 1): SINGLE,
    ("<", 2): SINGLE,
}


def by_rank(sign: str, number: int) -> Branches:
    """The branches of ``rank <sign> number``."""
    found = _BY_NUMBER.get((sign, number), ANY)
    # ``rank == 3``: of the ranks that fail the test, rank 0 is one and others are too.
    return _BY_OTHER_NUMBER.get(sign, ANY) if found is ANY and number > 0 else found


def by_size(sign: str, number: int) -> Branches:
    """The branches of ``world_size <sign> number``."""
    return _BY_SIZE.get((sign, number), ANY)


def number_of(node: cst.BaseExpression) -> int | None:
    """An integer literal, also as text (``os.environ["RANK"] == "0"``)."""
    if type(node) is cst.UnaryOperation and type(node.operator) is cst.Minus:
        inner = number_of(node.expression)
        return None if inner is None else -inner
    if type(node) is cst.Integer:
        return int(node.value) if node.value.isdecimal() else None
    if type(node) is cst.SimpleString:
        text = node.evaluated_value
        return int(text) if isinstance(text, str) and text in ("0", "-1", "1") else None
    return None
