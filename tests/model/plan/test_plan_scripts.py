"""Which file a launch command starts: modules, clones by their names, console scripts, paths from other folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace

_PARSES = "import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--lr')\np.parse_args()\n"
_PROJECT = '[project]\nname = "Open-Clip"\n\n[project.scripts]\nclip-train = "clip.train:main"\n'


def plan(text: str, files: dict[str, str], path: str = "run.sh") -> RunPlan:
    """Return the plan of the one command of a launch file beside other files."""
    workspace = Workspace(Path("/nonexistent/here"), {path: text, **files})
    kind = "markdown" if path.endswith(".md") else "shell"
    docs = read_launch_docs(SourceFile(path, text), kind, workspace)
    (found,) = build_plans([c for d in docs for c in d.commands], workspace)
    return found


@pytest.mark.parametrize(
    ("path", "text", "script"),
    [
        ("run.sh", "torchrun -m clip.train", "src/clip/train.py"),
        ("scripts/run.sh", "torchrun -m clip.train", "src/clip/train.py"),
        ("run.sh", "torchrun -m clip", "src/clip/__main__.py"),
        ("run.sh", "torchrun -m tool.run", "part/tool/run.py"),
        ("run.sh", "cd src\ntorchrun -m clip.train", "src/clip/train.py"),
        ("run.sh", "cd open_clip/src\ntorchrun -m clip.train", "src/clip/train.py"),
        ("run.sh", "cd open_clip/part\ntorchrun tool/run.py", "part/tool/run.py"),
        ("README.md", "```bash\ncd open_clip/part\ntorchrun tool/run.py\n```\n", "part/tool/run.py"),
        ("README.md", "```bash\ncd /data/open-clip/part\ntorchrun tool/run.py\n```\n", "part/tool/run.py"),
        ("run.sh", "torchrun tool/run.py", "part/tool/run.py"),
        ("run.sh", "torchrun ./tool/run.py", "part/tool/run.py"),
        ("docs/a/train.md", "```bash\ntorchrun train_clip.py\n```\n", "part/train_clip.py"),
        ("scripts/run.sh", "torchrun open_clip/part/tool/run.py", "part/tool/run.py"),
        ("docs/a.md", "```bash\ncd part\n```\n\n```bash\ntorchrun train.py\n```\n", "part/train.py"),
        ("docs/a.md", "See part/train.py.\n\n```bash\ntorchrun train.py\n```\n", "part/train.py"),
        ("run.sh", "clip-train --lr 1", "src/clip/train.py"),
        ("run.sh", "srun -n 8 clip-train --lr 1", "src/clip/train.py"),
        ("run.sh", "python -m torch.distributed.launch --nproc_per_node 8 $(which clip-train)", "src/clip/train.py"),
        ("run.sh", "torchrun --no-python clip-train --lr 1", "src/clip/train.py"),
        ("README.md", "```\nclip-train --lr 1\n```\n", "src/clip/train.py"),
    ],
)
def test_the_script_is_found(path: str, text: str, script: str) -> None:
    files = {
        "pyproject.toml": _PROJECT,
        "src/clip/__init__.py": "",
        "src/clip/__main__.py": _PARSES,
        "src/clip/train.py": _PARSES,
        "part/tool/run.py": _PARSES,
        "part/train_clip.py": _PARSES,
        "part/train.py": _PARSES,
        "other/train.py": _PARSES,
    }
    assert plan(text, files, path).script == script


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py",  # any file may have this name
        "torchrun tool/run.py",  # two files end like it
        "cd other/part\ntorchrun -m run",
        "torchrun ../elsewhere/train.py",
        "cd part\ntorchrun one/go.py",  # where `cd` leads is no question
    ],
)
def test_what_may_be_another_file_is_none(text: str) -> None:
    files = {"part/train.py": "", "one/tool/run.py": "", "two/tool/run.py": "", "two/one/go.py": ""}
    assert plan(text, files).script is None


def test_a_script_in_a_package_of_another_name_is_reported_with_its_path() -> None:
    found = plan("deepspeed llava/train/train.py", {"videollava/train/train.py": _PARSES}).missing_script
    assert found is not None
    assert found.meant == "videollava/train/train.py"


def test_setup_py_names_programs() -> None:
    setup = 'setup(\n    entry_points={"console_scripts": [\n        "go-train = pkg.cli:main",\n    ]},\n)\n'
    assert plan("go-train --lr 1", {"setup.py": setup, "pkg/cli.py": _PARSES}).script == "pkg/cli.py"


def test_the_options_of_a_program_are_those_of_its_module() -> None:
    found = plan("clip-train --bad 1", {"pyproject.toml": _PROJECT, "src/clip/train.py": _PARSES})
    assert [problem.kind for problem in found.refused] == ["unknown"]


def test_a_variable_exported_after_the_command_was_kept_counts() -> None:
    found = plan('CMD="xtuner train c.py"\nexport NNODES=8 NPROC_PER_NODE=8\neval "$CMD"', {})
    assert found.world_size.get() == 64


def test_a_launcher_is_one_in_its_own_project_too() -> None:
    files = {"pyproject.toml": '[project.scripts]\naccelerate = "accelerate.commands.accelerate_cli:main"\n'}
    assert plan("accelerate launch --num_processes 4 train.py", files).command.launcher == "accelerate"


def test_trl_starts_accelerate() -> None:
    found = plan("trl sft --num_processes 4 --model_name_or_path m", {})
    assert (found.command.launcher, found.world_size.get()) == ("trl", 4)


def test_a_config_needs_no_suffix() -> None:
    files = {"ds.conf": '{"zero_optimization": {"stage": 3}}', "train.py": _PARSES}
    found = plan("accelerate launch --use_deepspeed --deepspeed_config_file ds.conf train.py", files)
    assert (found.config_path.get(), found.zero_stage.get()) == ("ds.conf", 3)
