"""The census of mechanisms is a table of facts: every line reads, and every rule that it names exists."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dslint.rules.index import RULES

ROOT = Path(__file__).resolve().parents[2]
_CODES = {rule.code for rule in RULES} | {
    f"D{path.name[1:3].lstrip('0')}" for path in ROOT.glob("dslint/doctor/checks/d[0-9]*.py")
}
_WORDS = {
    "symptom": {"hang", "crash", "wrong", "ignored", "waste"},
    "cause": {"script", "config", "launch", "versions", "machine", "library", "unknown"},
    "visible": {"script", "config", "launch", "requirements", "no"},
    "of": {"library", "user"},
    "settled": {"yes", "likely", "no"},
}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The names of the generator of the page."""
    return runpy.run_path(str(ROOT / "scripts" / "generate_mechanisms.py"))


def test_every_line_is_one_of_facts(script: dict[str, Any]) -> None:
    for entry, threads in script["census"]():
        for thread in threads:
            for name, words in _WORDS.items():
                assert getattr(thread, name) in words, (entry["slug"], thread)
            assert 2015 <= thread.year <= 2026, thread
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|[\w.-]+\.[a-z]+/\S*", thread.place), thread


def test_a_thread_counts_once(script: dict[str, Any]) -> None:
    places = Counter(thread.place.lower() for _, threads in script["census"]() for thread in threads)
    assert [place for place, count in places.items() if count > 1] == []


def test_rules_and_mechanisms_that_are_named_exist(script: dict[str, Any]) -> None:
    entries = script["census"]()
    slugs = [entry["slug"] for entry, _ in entries]
    assert len(set(slugs)) == len(slugs)
    for entry, threads in entries:
        assert set(entry["rules"]) <= _CODES, entry["slug"]
        for thread in threads:
            assert thread.again in ("", *slugs), thread
            verdict, _, rule = thread.read.partition(":")
            assert verdict in ("", "found", "narrow", "none", "not"), thread
            assert rule == "" or rule in _CODES, thread


def test_a_visible_mechanism_has_a_rule_or_a_reason(script: dict[str, Any]) -> None:
    for entry, threads in script["census"]():
        visible = sum(thread.is_visible for thread in threads)
        assert visible < 2 or entry["rules"] or entry.get("note"), entry["slug"]


def test_the_page_is_up_to_date(script: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "mechanisms.md").read_text("utf-8") == script["generate"]()
