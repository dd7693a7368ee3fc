"""``dslint plan`` for people: what the fixture projects look like, and that every line fits.

``python tests/planview/test_plan_text.py --update`` rewrites the expected texts; review the diff before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from command import dslint, outside

from dslint.engine.planning import plan_paths
from dslint.model.launch.command import Condition
from dslint.planview.describe import views_of
from dslint.planview.graph import graph_of
from dslint.planview.jsonout import render as json_of
from dslint.planview.text import render
from dslint.report.options import ReportOptions
from dslint.settings import make_settings

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ROOT / "tests" / "fixtures" / "projects"
EXPECTED = ROOT / "tests" / "fixtures" / "plans"
NAMES = sorted(p.name for p in PROJECTS.iterdir() if p.is_dir() and not p.name.endswith("-fixed"))


def shown(name: str, folder: Path, width: int = 80) -> str:
    """The plan of a copy of a project, outside the repository."""
    target = folder / name
    if not target.exists():
        outside(PROJECTS / name, folder)
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "plan"],
        cwd=target,
        env={**os.environ, "COLUMNS": str(width), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_of_a_project(name: str, tmp_path: Path) -> None:
    assert shown(name, tmp_path) == (EXPECTED / f"{name}.txt").read_text("utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return tmp_path


SCRIPT = """\
export MASTER_PORT=29500
export MY_OWN=1
torchrun --nnodes $NNODES --nproc_per_node 4 train.py --lr 1e-4 --name 'a b'
"""
BATCH = '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
TRAIN = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser = deepspeed.add_config_arguments(parser)
engine, *_ = deepspeed.initialize(args=parser.parse_args(), model=None)
"""


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(here: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(PROJECTS / "llava-loss-zero")
    done = dslint("plan", "--all")
    assert max(map(len, done.out.splitlines())) <= width


def test_long_paths_do_not_leave_the_terminal(here: Path) -> None:
    folder = here / ("deep/" * 12)
    folder.mkdir(parents=True)
    name = f"{'deep/' * 12}accelerate_config_for_two_nodes.yaml"
    (here / name).write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n"
    )
    (here / "run.sh").write_text(f"accelerate launch --config_file {name} train.py\n")
    out = dslint("plan").out
    assert "accelerate: 2 nodes x 4 processes = 8 ranks" in out
    assert max(map(len, out.splitlines())) <= 80


def test_unknown_counts_say_why_and_quoted_words_stay_quoted(here: Path) -> None:
    (here / "run.sh").write_text(SCRIPT)
    (here / "train.py").write_text("print()\n")
    done = dslint("plan")
    assert "├─ start    torchrun: ? nodes x 4 processes = ? ranks" in done.out
    assert re.search(r"nodes \?: .*nnodes", done.out)
    assert "MASTER_PORT=29500" in done.out
    assert "MY_OWN" not in done.out
    everything = dslint("plan", "--all").out
    assert "MY_OWN=1" in everything
    assert "--name 'a b'" in everything
    assert "--nnodes $NNODES" in everything


def test_numbers_that_do_not_fit_are_marked(here: Path) -> None:
    (here / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n")
    (here / "train.py").write_text(TRAIN)
    (here / "ds.json").write_text(BATCH)
    done = dslint("plan")
    joined = " ".join(line[12:].strip() for line in done.out.splitlines())
    assert (
        "micro batch 4 (ds.json:1) x accumulation 1 (ds.json:1) x world size 8 (:1) is not train batch 30 (ds.json:1)"
        in joined
    )
    assert "└─ mismatch" in done.out


def test_colour_follows_the_flag_and_no_color(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "run.sh").write_text(SCRIPT)
    assert "\x1b[" not in dslint("plan").out
    coloured = dslint("plan", "--color", "always").out
    assert "\x1b[1m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == dslint("plan").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in dslint("plan").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in dslint("plan").out
    assert "\x1b[" not in dslint("plan", "-o", "plan.txt", "--color", "always").out
    assert "\x1b[" not in (here / "plan.txt").read_text()


def test_a_script_cannot_write_to_the_terminal(here: Path) -> None:
    (here / "run.sh").write_bytes(b"export MASTER_ADDR='\x1b]0;x\x07'\ntorchrun 't\x1b[31m.py' --lr '\xe2\x80\xae1'\n")
    out = dslint("plan", "--all").out
    assert not set(out) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b" in out


def test_wide_characters_keep_the_columns(here: Path) -> None:
    (here / "run.sh").write_text("torchrun 训练脚本.py --max_length 4096 --deepspeed " + "模型" * 40 + ".json\n")
    from rich.cells import cell_len

    assert max(map(cell_len, dslint("plan").out.splitlines())) <= 80


def test_a_run_that_no_command_starts(here: Path) -> None:
    (here / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}')
    (here / "args.json").write_text(
        '{"output_dir": "o", "per_device_train_batch_size": 2, "learning_rate": 1e-5, "deepspeed": "ds.json"}'
    )
    out = dslint("plan").out
    assert "no command starts this run" in out
    assert "train_micro_batch_size_per_gpu auto -> 2" in out


def test_conditions_of_a_command_stand_first_in_all_views(here: Path) -> None:
    (here / "run.sh").write_text("case $1 in\n  zero3)\n    torchrun --nproc_per_node 2 train.py\n    ;;\nesac\n")
    planned = plan_paths(["run.sh"], make_settings({}))
    (plan,) = planned.plans
    place = plan.command.location
    conditions = (Condition(place, "case $1 in zero3"), Condition(place, '[ -n "$DEBUG" ]', taken=False))
    command = replace(plan.command, conditions=conditions)
    views = views_of(replace(planned, plans=[replace(plan, command=command)]))
    text = render(views, ReportOptions(width=80), is_all=False).splitlines()
    assert text[2].split() == ["├─", "when", "case", "$1", "in", "zero3", "holds", ":3"]
    assert text[3].split() == ["├─", "when", "[", "-n", '"$DEBUG"', "]", "does", "not", "hold", ":3"]
    shown = json.loads(json_of(views, planned.workspace.read))["commands"][0]["conditions"]
    assert [(c["test"], c["taken"], c["line"]) for c in shown] == [
        ("case $1 in zero3", True, 3),
        ('[ -n "$DEBUG" ]', False, 3),
    ]
    (node, *_) = graph_of(views).nodes.values()
    assert node.lines[1:3] == ["when case $1 in zero3", 'unless [ -n "$DEBUG" ]']


if __name__ == "__main__":
    assert sys.argv[1:] == ["--update"], __doc__
    with tempfile.TemporaryDirectory() as scratch:
        EXPECTED.mkdir(exist_ok=True)
        for project in NAMES:
            (EXPECTED / f"{project}.txt").write_text(shown(project, Path(scratch)), "utf-8")
