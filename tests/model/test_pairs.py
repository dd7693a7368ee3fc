"""Releases that were installed side by side and imported, against what dslint says of them.

``tests/fixtures/pairs.toml`` holds what Python 3.11 said. No network is needed, and nothing is imported here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.model.surface import surface
from dslint.model.versions.importing import failures

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parents[1] / "fixtures" / "pairs.toml"
PAIRS: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["pair"]


def said(pair: dict[str, Any]) -> list[str]:
    """The names that dslint misses in a pair."""
    return [failure.dotted.rpartition(".")[2] for failure in failures(pair["installed"]) if failure.library == "peft"]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " ".join(f"{k}-{v}" for k, v in pair["installed"].items()))
def test_no_pair_that_imports_is_refused(pair: dict[str, Any]) -> None:
    assert not pair["error"] or said(pair) in ([], [pair["missing"]])
    assert pair["error"] or said(pair) == []


def test_pairs_that_fail_are_found() -> None:
    known = surface("peft")
    if known is None or not any(known.needs_at_import(release) for release in known.releases):
        pytest.skip("what releases need at their import is not in the data")
    failing = [pair for pair in PAIRS if pair["error"]]
    found = [pair for pair in failing if said(pair)]
    assert len(found) >= 0.9 * len(failing)
