"""Room for the interpreter on the stack of Python: each call that it follows takes several frames of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Frames of Python for the deepest chain of calls that is interpreted.
_FRAMES = 6_000


@contextmanager
def deep_calls() -> Iterator[None]:
    """Allow as many frames as the deepest chain of calls needs; afterwards the limit is what it was."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
