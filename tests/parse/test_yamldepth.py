"""Deeply nested YAML must be refused before a parser sees it that would end the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.parse.yamldepth import MAX_COLUMNS, too_deep

PARSE = (
    "import sys, tree_sitter, tree_sitter_yaml as y;"
    "tree_sitter.Parser(tree_sitter.Language(y.language())).parse(sys.stdin.buffer.read())"
)


def stairs(line: str, levels: int) -> str:
    return "".join("  " * level + line + "\n" for level in range(levels))


@pytest.mark.parametrize("line", ["a:", "- a:", "? a", "-", "- - a:"])
def test_more_levels_than_allowed_are_found(line: str) -> None:
    assert too_deep(stairs(line, 10)) is None
    assert too_deep(stairs(line, MAX_COLUMNS + 1)) is not None


@pytest.mark.parametrize("line", ["a:", "- a:", "? a", "-", "a: |"])
def test_the_deepest_text_allowed_does_not_crash_the_parser(line: str) -> None:
    text = "a:\n" + stairs(line, MAX_COLUMNS // 2)
    while too_deep(text + "  " * text.count("\n") + line + "\n") is None:
        text += "  " * (text.count("\n") - 1) + line + "\n"
    assert subprocess.run([sys.executable, "-c", PARSE], input=text.encode()).returncode == 0


def test_indicators_on_one_line_count() -> None:
    assert too_deep("- " * 150 + "x\n") is not None


def test_wide_and_long_files_are_not_deep() -> None:
    assert too_deep("a:\n  b:\n    c: 1\n" * 5_000) is None
    assert too_deep("# " + "- " * 500 + "\na: [" + "[" * 500 + "]" * 500 + "]\n") is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["a:", "- b", "", "# c", "- - c:", "d: |"]))))
def test_place_is_inside_the_text(rows: list[tuple[int, str]]) -> None:
    text = "\n".join(" " * column + line for column, line in rows)
    span = too_deep(text, limit=3)
    assert span is None or 0 <= span.start <= span.end <= len(text)
