"""Which files pytest or unittest run, by their names and by what they define."""

from __future__ import annotations

import re

_NAMED = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
_STARTED = re.compile(r"(?m)^if\s+__name__\s*==|\bparse_args\(")
_TESTS = re.compile(r"(?m)^\s*(?:async\s+)?def\s+test|\bunittest\b|\bpytest\b")


def is_test(path: str, text: str) -> bool:
    """Return whether a file is a test: a script for evaluation is called `test_net.py`, too, and has no test in it."""
    if _NAMED.search(path) is None:
        return False
    return _STARTED.search(text) is None or _TESTS.search(text) is not None
