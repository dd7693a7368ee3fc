"""The rules of ``codes.txt`` speak Chinese throughout: every text of their bad examples, every paragraph of their page.

The others may follow; a rule that is reworded here fails until its translation follows (CONTRIBUTING.md says how).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.rules.explain import paragraphs
from dslint.rules.registry import load_rule
from dslint.settings import make_settings
from dslint.translate.catalogue import Catalogue

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from extract_messages import QUOTED, left_in_english, told

CODES = (Path(__file__).parent / "codes.txt").read_text(encoding="utf-8").split()
WORD = re.compile(r"\b[A-Za-z]{2,}\b")
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def is_left(text: str) -> bool:
    """Return whether a translation is none, or has words of dslint in it."""
    return left_in_english(text) or (len(WORD.findall(QUOTED.sub("、", text))) > 2 and not CHINESE.search(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`gradient clipping of it` 不会被读取", False),
        ('以 "no such file here" 终止', False),
        ("ZeRO stage 3", False),
        ("the key is not read", True),
        ("键 `a`：the key is gone", True),
        ("Delete the Trainer", True),
    ],
)
def test_english_is_found_outside_of_code_and_quotes(text: str, expected: bool) -> None:
    assert is_left(text) == expected


@pytest.mark.parametrize("code", CODES)
def test_every_text_of_the_bad_examples_is_in_chinese(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, translate = load_rule(code), Catalogue.read("zh")
    texts: dict[str, None] = {}
    for number, example in enumerate(example for example in rule.examples if example.at):
        folder = tmp_path / str(number)
        (folder / ".git").mkdir(parents=True)
        for path, text in example.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        monkeypatch.chdir(folder)
        chosen = {"extend-select": [code]} if rule.meta.optional else {}
        settings = make_settings({**chosen, **example.settings, "cache": False, "jobs": 1}, folder)
        own = [finding for finding in check_paths(["."], settings).findings if finding.code == code]
        assert own
        texts.update(dict.fromkeys(text for finding in own for text in told(finding)))
    assert [text for text in texts if is_left(translate(text))] == []


@pytest.mark.parametrize("code", CODES)
def test_every_paragraph_of_the_page_but_the_evidence_has_a_translation(code: str) -> None:
    rule, translate = load_rule(code), Catalogue.read("zh")
    texts = [f"{rule.meta.summary}.", *paragraphs(rule.explanation)]
    assert [text for text in texts if not translate.knows(text) and not text.startswith("**Evidence.**")] == []
