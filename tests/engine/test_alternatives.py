"""Commands with alternatives: a finding is told once, with the condition under which it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.rules.examples.snippets import TRAINER
from dslint.settings import make_settings

SCRIPT = """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed")
args = parser.parse_args()
"""


def messages(root: Path, script: str, code: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(root)
    (root / "run.sh").write_text(script, encoding="utf-8")
    (root / "train.py").write_text(SCRIPT, encoding="utf-8")
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1, "select": [code]}, root))
    return [f.message for f in result.findings]


def test_a_port_that_one_arm_sets_is_told_with_its_condition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = "torchrun --nproc_per_node 8 --master_port $P train.py\n"
    (plain,) = messages(tmp_path, f"P=70000\n{run}", "DSL309", monkeypatch)
    script = "case $1 in\na) P=70000 ;;\nb) P=29500 ;;\nesac\n"
    assert messages(tmp_path, script + run, "DSL309", monkeypatch) == [f"{plain}, when `$1` is a (run.sh:1)"]
    # In both arms: no condition. Twice in one script: told once.
    both = 'if [ "$1" ]; then D=1; P=70000; else D=2; P=70000; fi\n'
    assert messages(tmp_path, both + run.replace("train.py", "train.py --seed $D"), "DSL309", monkeypatch) == [plain]
    fine = 'if [ "$1" ]; then P=29500; else P=29501; fi\n'
    assert messages(tmp_path, fine + run, "DSL309", monkeypatch) == []


def test_the_place_of_a_command_is_no_condition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = "torchrun --nproc_per_node 8 --master_port $P train.py\n"
    (plain,) = messages(tmp_path, f"P=70000\n{run}", "DSL309", monkeypatch)
    script = f'P=1; if [ "$1" = a ]; then P=70000; fi\nif [ "$1" = a ]; then\n{run}fi\n'
    assert messages(tmp_path, script, "DSL309", monkeypatch) == [plain]


def test_alternatives_do_not_run_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = "torchrun --nproc_per_node 8 --master_port 29500 train.py --lr $LR &\n"
    assert messages(tmp_path, f"LR=1\n{run}LR=2\n{run}wait\n", "DSL350", monkeypatch)
    script = f'if [ "$1" = a ]; then LR=1; else LR=2; fi\n{run}wait\n'
    assert messages(tmp_path, script, "DSL350", monkeypatch) == []


def test_a_script_that_documentation_calls_is_judged_as_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==5.20.0\n", encoding="utf-8")
    (tmp_path / "AAA.md").write_text("```bash\nGPUS=4 sh run.sh\n```\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    script = "GPUS=${GPUS:-4}\ntorchrun --nproc_per_node $GPUS train.py --evaluation_strategy no\n"
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAINER, encoding="utf-8")
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1, "select": ["DSL406"]}, tmp_path))
    assert [(f.location.path, f.severity.value) for f in result.findings] == [("run.sh", "error")]
