"""Which files pytest or unittest run, by their names and by what they define."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
_TESTS = re.compile(r"\bdef test|\bclass Test|\bTestCase\b|\b(?:pytest|unittest|doctest|absltest)\b")


def may_be_test(path: str) -> bool:
    """Return whether a test runner takes a file by its name."""
    return _NAMED.search(path) is not None


def is_test(path: str, text: str) -> bool:
    """Return whether a test runner takes a file by its name and finds something to run in it.

    A script that evaluates a model is called `test_net.py`, too.
    """
    return may_be_test(path) and _TESTS.search(text) is not None
