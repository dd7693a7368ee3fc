"""When Python looks for garbage. Nearly all that a run makes lives to its end, and every look at it is in vain."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two looks at the young ones (Python's own number is hundreds; all that one script needs is half as
# many), and how many of these looks pass before one at the older ones.
_SELDOM = (200_000, 50, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Few looks; cycles of a run that makes much garbage are found all the same."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(*map(max, _SELDOM, before))
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def no_collections() -> Iterator[None]:
    """No look at all: the nodes of a tree that grows are all live, and to scan them costs half of its parse."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def never_again() -> None:
    """For a process that ends: else Python looks at everything that lives, twice, before it goes."""
    gc.disable()
    gc.freeze()
