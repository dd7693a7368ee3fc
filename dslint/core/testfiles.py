"""Which files pytest or unittest run, by their names."""

from __future__ import annotations

import re

TEST_FILE = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
