"""Releases that were installed side by side and imported, against what dslint says of them.

``tests/fixtures/pairs.toml`` holds what Python 3.11 said. No network is needed, and nothing is imported here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.model.surface import surface
from dslint.model.versions.importing import condition_holds, failures

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


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("torch>=1.12", True),
        ("torch>=2.0.1", False),
        ("!torch>=2.0.1", True),
        ("accelerate>=0.20", True),  # a name that ends in letters which releases have, too
        ("accelerate>=0.22.0", False),
        ("torch>=>=", None),  # the number was a name
        ("!torch>=>=", None),
        ("peft>=0.4", None),  # not among the releases
    ],
)
def test_conditions_of_what_an_import_asks_for(condition: str, holds: bool | None) -> None:
    installed = {"torch": "1.13.1", "accelerate": "0.21.0"}
    assert condition_holds(condition, "accelerate", installed, {name: name for name in installed}) is holds


def test_a_guard_whose_number_is_a_name_is_no_need() -> None:
    installed = {"accelerate": "0.21.0", "torch": "1.13.1"}
    assert [f.dotted for f in failures(installed) if f.library == "accelerate"] == []
