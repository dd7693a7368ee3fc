"""DeepSpeed, transformers and accelerate judge dslint: an error means that the library stops, and the reverse.

Thousands of configs go through the real libraries in processes of their own and through the rules. What differs is
listed in ``disagreements.toml`` with its reason; anything else fails. ``pytest tests/differential --full`` takes all.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest
from harness import sizes
from harness.asking import ORACLE
from harness.comparing import Row, told

pytestmark = pytest.mark.skipif(
    sys.executable == ORACLE and importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)

LEAST = {"seeded": 99.8, "grid": 99.5, "triples": 99.8, "older": 99.0, "trainer": 99.0, "accelerate": 95.0}


def check(row: Row | None, release: str, least: float, full: bool) -> None:
    if row is None:
        pytest.skip(f"the source archive of DeepSpeed {release} is not here and cannot be downloaded")
    print(row)
    assert not row.unlisted, f"{len(row.unlisted)}:\n" + "\n".join(told(outcome) for outcome in row.unlisted[:40])
    # A difference weighs more in the small sample.
    assert row.agreement >= (least if full else least - 0.5), row
    if full:
        more = [(entry, n) for entry, n in row.reasons.items() if n > entry.count]
        assert not more, f"more often than listed: {more}"


@pytest.mark.parametrize("what", ["seeded", "grid", "triples"])
def test_the_newest_release(what: str, full: bool) -> None:
    check(sizes.row(what, full), sizes.NEWEST, LEAST[what], full)


@pytest.mark.parametrize("release", sizes.OLDER)
def test_an_older_release(release: str, full: bool) -> None:
    check(sizes.row("older", full, release), release, LEAST["older"], full)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_configs_of_the_trainer(full: bool) -> None:
    check(sizes.trainer(full), sizes.NEWEST, LEAST["trainer"], full)


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_configs_of_accelerate(full: bool) -> None:
    check(sizes.accelerate(full), sizes.NEWEST, LEAST["accelerate"], full)
