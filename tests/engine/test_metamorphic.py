"""The examples of the script rules, said in another way: what was reported still is, and nothing else ever.

``tests/metamorphic/`` holds the rewrites, none of which changes what a script does: other imports, aliases, tests
turned round, functions, methods, modules, layout. Each example is judged after two or three of them, and
``abstentions.toml`` says which rules miss what: an entry that is found again must leave it.
``python tests/metamorphic/long.py`` runs all rewrites on all examples, or thousands of compositions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from metamorphic.examples import CASES, Case
from metamorphic.judge import generator_of, judged, misfixed, pick, rewritten
from metamorphic.subject import REWRITES
from metamorphic.table import LOUD, MENDED, TABLE, allowed, is_loud

# How many compositions of an example are judged; ``DSLINT_METAMORPHIC`` sets another number.
COMPOSITIONS = int(os.environ.get("DSLINT_METAMORPHIC", "1"))
BY_RULE: dict[str, list[Case]] = {}
for case in CASES:
    BY_RULE.setdefault(case.code, []).append(case)
ENTRIES = [(name, code) for name, entry in TABLE.items() for code in entry.rules]


@pytest.mark.parametrize("code", BY_RULE)
def test_other_ways_to_say_the_same(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for case in BY_RULE[code]:
        for seed in range(COMPOSITIONS):
            generator = generator_of(case, "together", seed)
            found = pick(case, generator, generator.choice([2, 2, 3]))
            if found is None:
                continue
            names = [r.name for r in found[0]]
            verdict = judged(tmp_path / "project", case, found[1])
            told = f"{case.name} after {names}:\n{found[1].files}\n{verdict.said}"
            assert verdict.kind != "false alarm" or is_loud(code, names), told
            assert verdict.kind != "missed" or allowed(code, names), told


def kinds(code: str, rewrite: str, folder: Path) -> Iterator[str]:
    """Yield how the examples of a rule are judged after a rewrite that changes them."""
    for case in BY_RULE[code]:
        subject = rewritten(case, [REWRITES[rewrite]], generator_of(case, rewrite))
        if subject is not None and subject.files != case.files:
            yield judged(folder / "project", case, subject).kind


@pytest.mark.parametrize("rewrite", TABLE)
def test_what_the_table_says_is_missed(rewrite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict: a rule that finds all its examples after a rewrite leaves the entry of the rewrite."""
    monkeypatch.chdir(tmp_path)
    assert TABLE[rewrite].why
    assert [code for code in TABLE[rewrite].rules if "missed" not in kinds(code, rewrite, tmp_path)] == []


@pytest.mark.parametrize("rewrite", LOUD)
def test_what_the_table_says_is_loud(rewrite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strict, too: a repaired false alarm leaves the table."""
    monkeypatch.chdir(tmp_path)
    assert LOUD[rewrite].why
    assert [code for code in LOUD[rewrite].rules if "false alarm" not in kinds(code, rewrite, tmp_path)] == []


@pytest.mark.parametrize("rewrite", MENDED)
def test_what_was_mended_stays_silent(rewrite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for case in (case for code in MENDED[rewrite] for case in BY_RULE[code] if not case.is_bad):
        subject = rewritten(case, [REWRITES[rewrite]], generator_of(case, rewrite))
        verdict = judged(tmp_path / "project", case, subject) if subject is not None else None
        assert verdict is None or verdict.kind != "false alarm", (case.name, subject, verdict)


@pytest.mark.parametrize("code", [c for c, cases in BY_RULE.items() if any(case.example.fixed for case in cases)])
def test_fixes_of_rewritten_examples(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They parse, leave nothing to fix, and touch no other statement."""
    monkeypatch.chdir(tmp_path)
    for case in BY_RULE[code]:
        generator = generator_of(case, "fix")
        found = pick(case, generator, 1) if case.example.fixed is not None else None
        if found is not None:
            wrong = misfixed(tmp_path / "project", case, found[1])
            assert wrong == "", (case.name, found[0][0].name, wrong, found[1].files)
