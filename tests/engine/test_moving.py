"""Findings move with their text, and are dropped where it was changed."""

from __future__ import annotations

import pytest

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import SourceFile, Span
from dslint.engine.moving import change_of

OLD = "one\ntwo bad\nthree\nfour bad\nfive\n"


def finding(text: str, word: str, nth: int = 0, related: str = "") -> Finding:
    source = SourceFile("a.py", text)
    at = -1
    for _ in range(nth + 1):
        at = text.index(word, at + 1)
    span = Span(at, at + len(word))
    other = (source.location(Span(text.index(related), text.index(related) + len(related))),) if related else ()
    fix = Fix("Mend", (Edit("a.py", span, "good"),))
    return Finding("DSL201", "x", Severity.ERROR, "m", source.location(span), related=other, fix=fix)


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (OLD, [2, 4]),
        ("\n" + OLD, [3, 5]),
        (OLD.replace("three", "three\n\nmore"), [2, 6]),
        (OLD.replace("two bad", "two bad "), [4]),
        (OLD.replace("two bad\n", ""), [3]),
        (OLD.replace("two bad\n", "two bad\n\n"), [2, 5]),
        (OLD + "six", [2, 4]),
        (OLD.replace("five\n", ""), [2, 4]),
        ("", []),
        (OLD.replace("bad", "BAD"), []),
        ("zero\n" + OLD.replace("five", "5"), []),
    ],
)
def test_places(new: str, lines: list[int]) -> None:
    findings = [finding(OLD, "bad"), finding(OLD, "bad", 1)]
    moved = change_of("a.py", OLD, new).moved(findings)
    assert [one.location.region.line for one in moved] == lines
    for one in moved:
        assert new[one.location.span.start : one.location.span.end] == "bad"
        assert one.fix is not None
        assert one.fix.edits[0].span == one.location.span


def test_places_beside_it() -> None:
    one = finding(OLD, "bad", 1, related="two")
    new = OLD.replace("two", "2")
    (moved,) = change_of("a.py", OLD, new).moved([one])
    assert moved.related == ()
    assert moved.location.region.line == 4


def test_a_finding_in_another_file_stays() -> None:
    one = finding(OLD, "bad")
    assert change_of("b.py", "x\n", "y\n").moved([one]) == [one]
