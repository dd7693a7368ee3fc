"""Launch scripts with the line ends of Windows: one finding, one fix, and a plan of what bash makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import dslint

_SCRIPT = "import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
_RUN = b"#!/bin/bash\r\nGPUS=8\r\ntorchrun --nproc_per_node $GPUS train.py \\\r\n  --lr 1 \\\r\n  --bad 2\r\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(_SCRIPT, encoding="utf-8")
    (tmp_path / "run.sh").write_bytes(_RUN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_nothing_else_is_said_of_what_bash_makes_of_it(project: Path) -> None:
    assert dslint("--isolated", "--no-cache", "--output-format", "concise", ".").codes == ["DSL357"]


def test_the_fix_shows_what_is_wrong_with_the_commands(project: Path) -> None:
    done = dslint("--isolated", "--no-cache", "--fix", "--output-format", "concise", ".")
    assert done.codes == ["DSL403"]
    assert (project / "run.sh").read_bytes() == _RUN.replace(b"\r", b"")


def test_the_plan_shows_what_bash_does(project: Path) -> None:
    (command,) = json.loads(dslint("plan", "--format", "json", ".").out)["commands"]
    assert command["argv"] == ["torchrun", "--nproc_per_node", "8\r", "train.py", "\r"]
    assert r"$'8\r'" in dslint("plan", ".").out
