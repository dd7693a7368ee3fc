"""Work that may be given up: whoever begins it says how it learns that nobody waits for it any more.

Only an editor's server gives work up. What takes long asks while it works, and leaves by an exception that nothing
between catches: a rule that is interrupted has not crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(BaseException):
    """The work was given up, since its texts have changed again."""


class _State:
    check: Callable[[], None] | None = None


def stop_check() -> Callable[[], None] | None:
    """Return what raises :class:`Interrupted` when the work of this block is to end; ``None`` where nobody ends it."""
    return _State.check


def check_stop() -> None:
    """End the work that goes on, if nobody waits for it.

    Raises:
        Interrupted: nobody waits.
    """
    if _State.check is not None:
        _State.check()


@contextmanager
def stoppable(check: Callable[[], None]) -> Iterator[None]:
    """The work of this block ends where ``check`` raises."""
    before, _State.check = _State.check, check
    try:
        yield
    finally:
        _State.check = before
