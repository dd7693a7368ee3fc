"""``dslint plan --format json``: every output fits its schema, and the values are those of the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import dslint, outside
from jsonschema import Draft7Validator

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ROOT / "tests" / "fixtures" / "projects"
SCHEMA = json.loads((ROOT / "schemas" / "plan.schema.json").read_text("utf-8"))
NAMES = sorted(path.name for path in PROJECTS.iterdir() if path.is_dir())


def plan(*arguments: str) -> list[dict[str, Any]]:
    """The commands of a plan that fits the schema."""
    done = dslint("plan", "--format", "json", *arguments)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    Draft7Validator(SCHEMA).validate(report)
    commands: list[dict[str, Any]] = report["commands"]
    return commands


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args, model=None)
"""


def test_the_schema_is_a_schema_and_refuses_what_it_does_not_know() -> None:
    Draft7Validator.check_schema(SCHEMA)
    report = {"version": 1, "dslint": "0", "commands": [{"file": "run.sh"}]}
    assert any("required property" in e.message for e in Draft7Validator(SCHEMA).iter_errors(report))


@pytest.mark.parametrize("name", NAMES)
def test_every_fixture_project_has_plans_that_fit_the_schema(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outside(PROJECTS / name, tmp_path))
    commands = plan()
    assert commands
    for command in commands:
        assert (PROJECTS / name / command["file"]).is_file()
        assert command["argv"]
        assert command["world_size"] is not None or any(u["what"] == "world_size" for u in command["unknown"])


def test_the_values_of_a_command(here: Path) -> None:
    (here / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}\n')
    (here / "train.py").write_text(TRAIN)
    (here / "requirements.txt").write_text("deepspeed==0.16.9\n")
    (here / "run.sh").write_text(
        "export NCCL_DEBUG=INFO\nexport HOSTS=$(hostname)\nPRIVATE=1\nN=8\n"
        'LR=1e-4 nohup srun -N 1 deepspeed --num_gpus $N train.py --deepspeed_config ds.json "$1" $EXTRA_ARGS\n'
    )
    (command,) = plan()
    assert (command["file"], command["line"]) == ("run.sh", 5)
    assert command["env"] == {"NCCL_DEBUG": "INFO", "HOSTS": None, "LR": "1e-4"}
    assert command["wrappers"] == [["nohup"], ["srun", "-N", "1"]]
    assert command["argv"] == [
        "deepspeed", "--num_gpus", "8", "train.py", "--deepspeed_config", "ds.json", None, None
    ]  # fmt: skip
    assert command["spreads"] == [7]
    assert command["launcher"] == "deepspeed"
    assert (command["nodes"], command["processes_per_node"], command["world_size"]) == (1, 8, 8)
    assert (command["script"], command["module"]) == ("train.py", None)
    assert {**command["parser"], "why": None} == {
        "kind": "argparse", "library": "argparse", "open": False, "why": None, "file": "train.py"
    }  # fmt: skip
    assert command["devices"] == [str(n) for n in range(8)]
    assert command["script_args"] == ["--deepspeed_config", "ds.json", None, None]
    assert command["configs"] == {"deepspeed": "ds.json"}
    assert (command["zero_stage"], command["precision"]) == (2, "fp32")
    micro, train = command["batch"]["micro"], command["batch"]["train"]
    place = {"file": "ds.json", "line": 1, "text": (here / "ds.json").read_text().strip()}
    assert micro == {"value": 4, "origins": [place], "why": None}
    assert (train["value"], train["why"]) == (32, "worked out from the other numbers")
    assert command["versions"]["deepspeed"]["specifier"] == "==0.16.9"
    assert command["versions"]["deepspeed"]["origins"][0]["line"] == 1
    whats = {u["what"]: u for u in command["unknown"]}
    assert {"env.HOSTS", "argv[6]", "argv[7]"} <= set(whats)
    assert "env.PRIVATE" not in whats
    assert whats["argv[6]"]["line"] == 5
    assert command["origins"]["processes_per_node"] == [
        {"file": "run.sh", "line": 5, "text": (here / "run.sh").read_text().splitlines()[4]},
        {"file": "run.sh", "line": 4, "text": "N=8"},
    ]


@pytest.mark.parametrize(
    ("line", "wrappers", "argv"),
    [
        ("python -m torch.distributed.run --nproc_per_node 2 t.py", [], None),
        ("time env A=1 torchrun t.py", [["time"], ["env", "A=1"]], ["torchrun", "t.py"]),
        ("srun -n 4 python t.py", [["srun", "-n", "4"]], ["python", "t.py"]),
        ("mpirun -np 4 --mca btl tcp python t.py", [["mpirun", "-np", "4", "--mca", "btl", "tcp"]], ["python", "t.py"]),
        ("uv run --with x accelerate launch t.py", [["uv", "run", "--with", "x"]], ["accelerate", "launch", "t.py"]),
        ("docker run --gpus all img torchrun t.py", [["docker", "run", "--gpus", "all", "img"]], ["torchrun", "t.py"]),
    ],
)
def test_wrappers_and_argv_are_all_words(
    here: Path, line: str, wrappers: list[list[str]], argv: list[str] | None
) -> None:
    (here / "run.sh").write_text(line + "\n")
    (command,) = plan("run.sh")
    assert command["wrappers"] == wrappers
    assert command["argv"] == (argv or line.split())
    assert [word for words in (*wrappers, command["argv"]) for word in words] == line.split()


def test_auto_is_filled_by_the_trainer_and_said_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(outside(PROJECTS / "llava-loss-zero", tmp_path))
    (command,) = plan("scripts/finetune.sh")
    filled = command["effective_config"]
    assert filled["/train_batch_size"]["value"] == 16 * 1 * 8
    assert filled["/train_micro_batch_size_per_gpu"]["origins"][0]["text"].startswith(
        "--per_device_train_batch_size 16"
    )
    assert filled["/bf16/enabled"]["value"] is True
    assert filled["/zero_optimization/reduce_bucket_size"]["value"] is None
    assert "hidden size" in filled["/zero_optimization/reduce_bucket_size"]["why"]
    assert command["batch"]["accumulation"]["value"] == 1
    assert command["parser"]["kind"] == "dataclasses"


def test_a_script_or_config_shows_the_commands_that_use_it(here: Path) -> None:
    (here / "ds.json").write_text('{"train_batch_size": 8}')
    (here / "train.py").write_text(TRAIN)
    (here / "a.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n")
    (here / "b.sh").write_text("deepspeed --num_gpus 4 train.py\n")
    (here / "c.sh").write_text("deepspeed --num_gpus 4 other.py\n")
    assert [c["file"] for c in plan("train.py")] == ["a.sh", "b.sh"]
    assert [c["file"] for c in plan("ds.json")] == ["a.sh"]
    assert [c["file"] for c in plan("c.sh")] == ["c.sh"]


def test_a_file_of_arguments_without_a_command_has_no_launcher(here: Path) -> None:
    (here / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}')
    (here / "recipe.yaml").write_text(
        "stage: sft\ntemplate: qwen\nfinetuning_type: lora\nmodel_name_or_path: x\ndeepspeed: ds.json\n"
        "per_device_train_batch_size: 2\n"
    )
    (command,) = plan()
    assert (command["launcher"], command["argv"], command["world_size"]) == (None, [], None)
    assert command["configs"] == {"deepspeed": "ds.json", "arguments": "recipe.yaml"}
    assert command["batch"]["micro"]["value"] == 2


def test_auto_that_nobody_fills_is_auto(here: Path) -> None:
    (here / "ds.json").write_text('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}')
    (here / "run.sh").write_text("torchrun --nproc_per_node 2 t.py --deepspeed ds.json\n")
    (command,) = plan()
    assert command["batch"]["train"]["value"] == "auto"
    assert command["batch"]["micro"]["why"]


def test_numbers_that_do_not_fit_are_a_remark(here: Path) -> None:
    (here / "ds.json").write_text(
        '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}'
    )
    (here / "train.py").write_text(TRAIN)
    (here / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n")
    (command,) = plan()
    (remark,) = command["remarks"]
    assert "is 30, but micro batch 4 x accumulation steps 1 x world size 8 = 32" in remark


ODD = {
    "empty.sh": b"",
    "binary.sh": b"#!/bin/bash\ntorchrun \xff\xfe\x00 t.py\n",
    "utf16.sh": "torchrun t.py\n".encode("utf-16"),
    "deep.sh": b"torchrun " + b"$(" * 3000 + b"\n",
    "quote.sh": b"torchrun 'never ends\n",
    "escape.sh": b"torchrun --rdzv_id '\x1b[31m' t.py --x '</script>&\"'\n",
    "long.sh": b"torchrun t.py " + b"--x 1 " * 5000 + b"\n",
}


@pytest.mark.parametrize("name", ODD)
def test_bad_files_never_end_in_a_traceback(here: Path, name: str) -> None:
    (here / name).write_bytes(ODD[name])
    in_folder, by_name = (dslint("plan", "--format", "json", path) for path in (".", name))
    unread = name in ("binary.sh", "utf16.sh")
    assert (in_folder.code, by_name.code) == (0, 2 if unread else 0)
    for done in (in_folder, by_name):
        Draft7Validator(SCHEMA).validate(json.loads(done.out))
        assert "Traceback" not in done.err
    if unread:
        assert by_name.err.startswith(f"dslint: {name}: ")


def test_paths_without_a_command_say_so(here: Path) -> None:
    (here / "t.py").write_text("print()\n")
    done = dslint("plan", "--format", "json")
    assert (done.code, json.loads(done.out)["commands"]) == (0, [])
    assert done.err == "dslint: no launch command in these paths\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing.sh",), "nothing.sh"),
        (("-",), "not standard input"),
        (("--format", "xml"), "invalid choice"),
        (("--formt", "json"), "did you mean `--format`"),
        (("--world-size", "0"), "at least 1"),
        (("-o", "no/such/folder/plan.json"), "No such file"),
    ],
)
def test_wrong_usage_is_one_line_and_2(here: Path, arguments: tuple[str, ...], says: str) -> None:
    done = dslint("plan", *arguments)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1


def test_the_plan_goes_to_a_file(here: Path) -> None:
    (here / "run.sh").write_text("torchrun t.py\n")
    done = dslint("plan", "--format", "json", "-o", "plan.json")
    assert (done.code, done.out) == (0, "")
    assert json.loads((here / "plan.json").read_text())["version"] == 1


def test_excludes_and_settings_hold_as_for_check(here: Path) -> None:
    (here / "a").mkdir()
    (here / "a" / "run.sh").write_text("torchrun t.py\n")
    (here / "run.sh").write_text("torchrun t.py\n")
    (here / "dslint.toml").write_text('extend-exclude = ["a/"]\n')
    assert [c["file"] for c in plan()] == ["run.sh"]
    assert [c["file"] for c in plan("--isolated")] == ["a/run.sh", "run.sh"]
    (here / "dslint.toml").write_text("extend-exclud = []\n")
    assert dslint("plan").code == 2


def test_the_order_is_the_same_in_every_run(tmp_path: Path) -> None:
    """Sets of texts have another order in each process."""
    names = [f"NAME_{letter}" for letter in "ABCDEFGHIJKLMNOP"]
    arms = "\n".join(f"  export {name}=1" for name in names)
    (tmp_path / "run.sh").write_text(f'if [ -d "$1" ]; then\n{arms}\nfi\ntorchrun --nproc_per_node 2 train.py\n')
    (tmp_path / "train.py").write_text("print()\n")
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "dslint", "plan", "--format", "json", "."],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
