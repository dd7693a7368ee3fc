"""Small programs whose lists are longer on some ranks than on others; CPython found them (`judge/`)."""

from __future__ import annotations

import pytest
from test_interpreter import RANK, TWO, held

from dslint.python.varies import DIVERGENT, LOST

BAG = """
class Bag:
    def __init__(self, items):
        self.items = list(items)
    def __iter__(self):
        for item in self.items:
            yield item
"""


def same(text: str) -> bool:
    """Return whether the engine claims that `x` holds the same on all ranks where it is read."""
    return not held(text, "x", TWO)[1] & (DIVERGENT | LOST)


@pytest.mark.parametrize(
    "code",
    [
        "x = list(range(1 + {n})).pop()",
        "x = list(range(1 + {n}))[-1]",
        "v = list(range(1 + {n}))\nif v:\n    x = v.pop()",
        "*_, x = list(range(1 + {n}))",
        "for x in [*list(range({n})), 7]:\n    x",
        "match [*list(range({n})), 7]:\n    case [first, *others]:\n        for x in others:\n            x",
        "x = sum(Bag(range({n})))",
    ],
)
def test_items_counted_from_an_end_that_differs_differ(code: str) -> None:
    assert not same(RANK + BAG + code.format(n="rank") + "\nx")
    assert same(RANK + BAG + code.format(n="3") + "\nx")


def test_items_counted_from_the_front_are_the_same() -> None:
    assert same(RANK + "for x in range(rank):\n    x")
    assert same(RANK + "x = list(range(1 + rank))[0]\nx")
    assert same(RANK + "for x in [7, *range(rank)]:\n    x")


def test_a_list_that_one_rank_has_emptied_is_not_what_the_others_have() -> None:
    text = RANK + "v = [rank]\nif rank == 0:\n    del v[0]\n    %s\nx = len(v)\nx"
    for change in ("del v[8:]", "v.sort()", "v.reverse()", "pass"):
        assert not same(text % change)
