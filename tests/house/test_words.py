"""How the messages read: headlines are short, and in the field's words.

The figures are those of all messages of the examples (``python scripts/print_messages.py --words`` prints them). What
is to be done belongs in the hint, and other places are related locations.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADLINE = re.compile(r"  (?:error|warning|info): (.+)")
CODE = re.compile(r"`[^`]*`")
# What we once said, and what is said instead.
OLD = {
    "without a word": "silently",
    "stands": "is",
    "stand": "are",
    "behind": "after",
    "blanks": "whitespace",
    "for ever": "forever",
    "dealt out": "divided",
    "deals out": "divides",
    "thrown away": "discarded",
    "handed on": "passed on",
    "hands on": "passes on",
    "takes itself for": "believes it is",
    "is no option": "is not an option",
    "is no key": "is not a key",
    "is no multiple": "is not a multiple",
}
_OLD = re.compile(rf"\b(?:{'|'.join(OLD)})\b")


def old_words(text: str) -> list[str]:
    """The words of a text that are said otherwise today; code between backticks is not ours."""
    return _OLD.findall(CODE.sub("", " ".join(text.split())))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of the review file: everything that a person is told by the examples."""
    file = tmp_path_factory.mktemp("words") / "messages.txt"
    command = [sys.executable, "scripts/print_messages.py", "--out", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return file.read_text(encoding="utf-8").splitlines()


def test_headlines_are_short(printed: list[str]) -> None:
    headlines = [match[1] for match in map(HEADLINE.fullmatch, printed) if match]
    lengths = [len(headline) for headline in headlines]
    assert len(lengths) > 1100
    assert median(lengths) <= 110
    assert quantiles(lengths, n=20)[18] <= 140
    assert [headline for headline in headlines if len(headline) > 180] == []


def test_what_a_person_is_told_is_in_plain_words(printed: list[str]) -> None:
    # The names of rules are stable, whatever their words.
    told = [line.strip() for line in printed if line.startswith(" ")]
    assert {line: words for line in told if (words := old_words(line))} == {}


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
