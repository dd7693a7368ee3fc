"""How the pages read: in the field's words. The messages are looked at where they are made (tests/engine)."""

from __future__ import annotations

import ast
from pathlib import Path

from plain_words import old_words

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_of_the_rules_are_in_plain_words() -> None:
    said = {}
    for file in sorted((ROOT / "dslint" / "rules").glob("*/dsl*.py")):
        page = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        said[file.name] = old_words(page)
    assert len(said) > 400
    assert {name: words for name, words in said.items() if words} == {}


def test_old_words_are_found_in_prose_only() -> None:
    assert old_words("the key stands twice, without a\nword") == ["stands", "without a word"]
    assert old_words("`the key stands` is code") == []
