"""Which files pytest or unittest run, by their names and by what stands in them."""

from __future__ import annotations

import re

TEST_FILE = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
# What a file holds that a test runner can run; one without is a script that tests a model: `test_net.py`.
_TESTS = re.compile(r"\bdef test|\bclass Test|\bTestCase\b|\b(?:pytest|unittest|doctest|absltest)\b")


def is_test_file(path: str, text: str) -> bool:
    """Return whether a test runner takes a file by its name and finds something to run in it."""
    return TEST_FILE.search(path) is not None and _TESTS.search(text) is not None


__all__ = ["TEST_FILE", "is_test_file"]
