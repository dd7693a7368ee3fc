"""Certain and likely findings: which they are, in which words, and who leaves them out."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from command import dslint

from dslint.core.assumptions import ASSUMPTIONS, assumed
from dslint.core.finding import Confidence, Finding
from dslint.engine.run import check_paths
from dslint.python.varies import ASSUMED, ASSUMPTION_OF
from dslint.settings import load_settings, make_settings

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import torch.distributed as dist\n\n\n"
BY_DATA = """\
def step(batch, model):
    if batch["labels"].sum() == 0:
        return
    dist.all_reduce(model(batch))
    dist.barrier()
"""
BY_NAME = """\
class Saver:
    def __init__(self, rank):
        self.chief = not rank

    def save(self):
        if self.chief:
            dist.barrier()
"""
BY_CALL = """\
def save(model):
    if dist.get_rank() == 0:
        dist.barrier()
"""


def findings(folder: Path, text: str, **settings: object) -> list[Finding]:
    """What dslint says of a script with this text."""
    (folder / "train.py").write_text(HEAD + text)
    return check_paths([str(folder)], make_settings({"cache": False, **settings}, folder)).findings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BY_DATA, "parameter `batch` holds each rank's own data (by its name)"),
        (BY_NAME, "parameter `rank` is the number of the process, or a test of it (by its name)"),
        (BY_CALL, None),
    ],
)
def test_a_finding_says_what_it_assumes(tmp_path: Path, text: str, words: str | None) -> None:
    found = [f for f in findings(tmp_path, text) if f.code in ("DSL201", "DSL204")]
    assert found
    assert [f.assumptions for f in found] == [(words,) if words else ()]
    assert found[0].confidence is (Confidence.LIKELY if words else Confidence.CERTAIN)


@pytest.mark.parametrize(("text", "is_shown"), [(BY_DATA, False), (BY_CALL, True)])
def test_likely_findings_can_be_left_out(tmp_path: Path, text: str, is_shown: bool) -> None:
    kept = findings(tmp_path, text, **{"min-confidence": "certain"})
    assert {f.code for f in kept} == ({f.code for f in findings(tmp_path, text)} if is_shown else set())


def test_a_suppression_of_a_likely_finding_that_is_left_out_is_of_use(tmp_path: Path) -> None:
    marked = BY_DATA.replace(" == 0:", " == 0:  # dslint: ignore[DSL204]")
    assert findings(tmp_path, marked, **{"min-confidence": "certain"}) == []


def test_the_environment_and_a_file_say_the_least_confidence(tmp_path: Path) -> None:
    (tmp_path / "dslint.toml").write_text('min-confidence = "certain"\n')
    assert load_settings(tmp_path, {}, environ={}).min_confidence == "certain"
    assert load_settings(tmp_path, {}, environ={"DSLINT_MIN_CONFIDENCE": "likely"}).min_confidence == "likely"
    assert load_settings(tmp_path, {"min-confidence": "certain"}, isolated=True, environ={}).min_confidence == "certain"


def test_the_same_is_read_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + BY_DATA)
    settings = make_settings({"cache-dir": tmp_path / "cache"}, tmp_path)
    first, second = (check_paths([str(tmp_path / "train.py")], settings).findings for _ in range(2))
    assert first == second
    assert first[0].assumptions


def test_every_format_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(HEAD + BY_DATA)
    monkeypatch.chdir(tmp_path)
    words = assumed("data-by-name", "batch")
    concise, full, github = (dslint("--no-cache", "--output-format", f).out for f in ("concise", "full", "github"))
    assert "(data-dependent-exit-between-collectives, likely)" in concise
    assert f"likely: assumes that {words}" in " ".join(full.split())
    assert f"likely: assumes that {words}" in github
    (row,) = json.loads(dslint("--no-cache", "--output-format", "json").out)["findings"]
    assert (row["confidence"], row["assumptions"]) == ("likely", [words])
    (result,) = json.loads(dslint("--no-cache", "--output-format", "sarif").out)["runs"][0]["results"]
    assert result["properties"] == {"confidence": "likely", "assumptions": [words]}
    assert result["rank"] == 50.0
    assert f"Likely: assumes that {words}" in result["message"]["text"]
    assert dslint("--no-cache", "--min-confidence", "certain").code == 0


def test_every_bit_has_a_row_and_the_page_is_made_from_the_rows() -> None:
    joined = 0
    for bit, key in ASSUMPTION_OF.items():
        joined |= bit
        assert assumed(key)
    assert joined == ASSUMED
    assert len({row.key for row in ASSUMPTIONS}) == len(ASSUMPTIONS)
    script = runpy.run_path(str(ROOT / "scripts" / "generate_assumptions_docs.py"))
    assert (ROOT / "docs" / "assumptions.md").read_text("utf-8") == script["generate"](), f"run `{script['COMMAND']}`"
