"""How far a run is, told to whoever listens; nobody does unless a terminal waits.

Only the process that the user has started tells: workers inherit the listener and never call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Listener(Protocol):
    """Gets the stage, how many files of it are done, and how many there are (0: nobody knows)."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take one report."""


class _State:
    listener: Callable[[str, int, int], None] | None = None


def tell(stage: str, done: int = 0, total: int = 0) -> None:
    """Say how far a stage is."""
    if _State.listener is not None:
        _State.listener(stage, done, total)


def told(stage: str, items: Iterable[T], total: int) -> Iterator[T]:
    """The items, with a report after each."""
    for done, item in enumerate(items, 1):
        tell(stage, done, total)
        yield item


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Reports of this block go to the listener."""
    before, _State.listener = _State.listener, listener
    try:
        yield
    finally:
        _State.listener = before
