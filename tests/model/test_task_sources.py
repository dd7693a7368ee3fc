"""Launch commands in files of task runners, in notebooks, and in resources that say how many processes there are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.engine.discovery import kind_of
from dslint.engine.planning import plan_paths
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.parse.notebook import notebook_text
from dslint.settings import Settings


def commands(text: str, path: str, kind: str = "") -> list[LaunchCommand]:
    source = notebook_text(path, text) if kind == "notebook" else SourceFile(path, text)
    return [command for doc in read_launch_docs(source, kind or kind_of(path)) for command in doc.commands]


def told(command: LaunchCommand) -> tuple[int, int | str, str | None]:
    script = command.script.text if command.script is not None else None
    return command.location.region.line, shown(command.world_size), script


POE = """\
[tool.poe.tasks]
a = "torchrun --nproc_per_node 2 train.py"
b = {shell = "cd sub && torchrun --nproc_per_node 3 train.py"}
[tool.poe.tasks.c]
cmd = "torchrun --nproc_per_node 4 train.py"
env = {NCCL_DEBUG = "INFO"}
cwd = "sub"
[tool.other]
x = "torchrun --nproc_per_node 9 train.py"
"""
PDM = """\
[tool.pdm.scripts]
a = "torchrun --nproc_per_node 2 train.py {args}"
b = {cmd = ["torchrun", "--nproc_per_node", "3", "train.py"], env = {A = "1"}}
"""
PIXI = """\
[tasks]
a = "torchrun --nproc_per_node 2 train.py"
[feature.gpu.tasks]
b = {cmd = "torchrun --nproc_per_node 3 train.py", cwd = "sub"}
"""
HATCH = """\
[tool.hatch.envs.default.scripts]
a = "torchrun --nproc_per_node 2 train.py"
b = ["echo go", "torchrun --nproc_per_node 3 train.py {args:--lr 1}"]
"""
TOX = """\
[testenv:train]
commands_pre = pip list
commands =
    echo go
    - torchrun --nproc_per_node 2 \\
        train.py {posargs:--lr 1}
[other]
commands = torchrun --nproc_per_node 9 train.py
"""
JUST = """\
gpus := "4"
export NCCL_DEBUG := 'INFO'

# starts it
train lr="1" *rest: build
    @torchrun --nproc_per_node {{gpus}} train.py --lr {{lr}} {{rest}}

[no-cd]
script:
    #!/usr/bin/env bash
    N=2
    torchrun --nproc_per_node $N train.py
"""
PACKAGE = '{\n "scripts": {\n  "train": "torchrun --nproc_per_node 2 train.py"\n }\n}\n'


def test_tables_of_tasks() -> None:
    a, b, c = commands(POE, "pyproject.toml")
    assert [told(a), told(b), told(c)] == [(2, 2, "train.py"), (3, 3, "train.py"), (5, 4, "train.py")]
    assert (b.cwd.get(), c.cwd.get(), c.variable("NCCL_DEBUG").get()) == ("sub", "sub", "INFO")
    a, b = commands(PDM, "pyproject.toml")
    assert [told(a), told(b)] == [(2, 2, "train.py"), (3, 3, "train.py")]
    assert (a.script_args[-1].text, b.variable("A").get()) == (None, "1")
    a, b = commands(PIXI, "pixi.toml")
    assert [told(a), told(b), b.cwd.get()] == [(2, 2, "train.py"), (4, 3, "train.py"), "sub"]
    a, b = commands(HATCH, "pyproject.toml")
    assert [told(a), told(b)] == [(2, 2, "train.py"), (3, 3, "train.py")]
    assert commands("[tool.poe\n", "pyproject.toml") == []


def test_environments_of_tox_and_scripts_of_npm() -> None:
    (only,) = commands(TOX, "tox.ini")
    assert told(only) == (5, 2, "train.py")
    assert [word.text for word in only.script_args] == [None]
    (only,) = commands(PACKAGE, "package.json", "tasks")
    assert told(only) == (3, 2, "train.py")


def test_recipes_of_just() -> None:
    first, second = commands(JUST, "justfile")
    assert [told(first), told(second)] == [(6, 4, "train.py"), (12, 2, "train.py")]
    assert [word.text for word in first.script_args] == ["--lr", None, None]
    assert first.variable("NCCL_DEBUG").get() == "INFO"


def test_tasks_of_vs_code() -> None:
    tasks = [
        {"type": "shell", "command": "torchrun --nproc_per_node 2 ${workspaceFolder}/train.py",
         "options": {"env": {"A": "1"}, "cwd": "${workspaceFolder}/sub"}},
        {"type": "process", "command": "torchrun", "args": ["--nproc_per_node", "4", "train.py"]},
        {"type": "shell", "command": "torchrun",
         "args": ["train.py", {"value": "a b", "quoting": "strong"}, "${input:x}"]},
        {"type": "npm", "script": "torchrun"},
    ]  # fmt: skip
    text = json.dumps({"version": "2.0.0", "tasks": tasks}, indent=1)
    first, second, third = commands(text, ".vscode/tasks.json", "vscode")
    assert (shown(first.world_size), first.variable("A").get(), first.cwd.get()) == (2, "1", "sub")
    assert shown(second.world_size) == 4
    assert [word.text for word in third.script_args] == ["a b", None]


def notebook(*cells: str) -> str:
    found = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# x"]}, *found], "nbformat": 4}, indent=1)


NOTEBOOK = notebook(
    "import os\nos.environ['NCCL_DEBUG'] = 'INFO'\n%env CUDA_VISIBLE_DEVICES=0,1",
    "if True:\n    !torchrun --nproc_per_node 2 \\\n      train.py --lr {lr}\nfiles = 1",
    "%cd sub",
    "%%bash\necho go\ntorchrun --nproc_per_node 3 train.py",
    "%sh torchrun --nproc_per_node 4 train.py",
    "%%writefile x.sh\ntorchrun --nproc_per_node 9 train.py",
    "x = 1\nprint('!torchrun --nproc_per_node 9 train.py')",
)


def test_lines_and_cells_of_a_notebook() -> None:
    first, second, third = commands(NOTEBOOK, "n.ipynb", "notebook")
    assert [told(first), told(second), told(third)] == [(2, 2, "train.py"), (3, 3, "train.py"), (1, 4, "train.py")]
    assert [command.location.region.cell for command in (first, second, third)] == [3, 5, 6]
    assert [word.text for word in first.script_args] == ["--lr", None]
    assert (first.variable("NCCL_DEBUG").get(), first.variable("CUDA_VISIBLE_DEVICES").get()) == ("INFO", "0,1")
    assert (first.cwd.is_absent, second.cwd.get()) == (True, "sub")
    assert commands("{", "n.ipynb", "notebook") == []


def test_a_session_of_nox() -> None:
    text = "def train(session):\n    session.run('torchrun', '--nproc_per_node', '2', 'train.py', *session.posargs)\n"
    (only,) = commands(text, "noxfile.py", "script")
    assert told(only) == (2, 2, "train.py")


SKY = """\
resources: {accelerators: "A100:8"}
num_nodes: 2
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py
"""
PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  nprocPerNode: "4"
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{command: [torchrun, train.py]}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{command: [torchrun, --nproc_per_node, "2", train.py]}]}}}
"""
TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {trainer: {numNodes: 2, numProcPerNode: 4, command: [torchrun, train.py]}}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
spec: {template: {spec: {containers: [{command: [torchrun, --nproc_per_node=8, train.py]}]}}}
"""
RAYJOB = """\
apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: torchrun --nproc_per_node 4 train.py
"""
AZURE = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: torchrun --nproc_per_node 2 train.py --lr ${{inputs.lr}}
environment: azureml:x@latest
"""
AZURE_EACH = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: >-
  pip install -r requirements.txt && python train.py --data ${{inputs.data}}
distribution:
  type: mpi
  process_count_per_instance: 4
resources:
  instance_count: 2
"""
DSTACK = "type: task\nnodes: 2\ncommands:\n  - pip install torch\n  - torchrun --nproc_per_node 2 train.py\n"
TASKFILE = """\
version: '3'
tasks:
  train:
    cmds:
      - torchrun --nproc_per_node 2 train.py
      - cmd: torchrun --nproc_per_node 3 train.py
"""
ELASTIC = PYTORCHJOB.replace("  nprocPerNode", "  elasticPolicy: {maxReplicas: 4}\n  nprocPerNode")
CIRCLE = "jobs:\n  b:\n    steps:\n      - run: {name: x, command: torchrun --nproc_per_node 3 train.py}\n"
COMPOSE = "services:\n  c:\n    entrypoint: torchrun --nproc_per_node=2\n    command: train.py --lr 1\n"


@pytest.mark.parametrize(
    ("text", "worlds"),
    [
        (SKY, [16]),
        (SKY.replace('"A100:8"', "{H100: 4}"), [8]),
        (SKY.replace("num_nodes: 2\n", ""), ["unknown"]),
        (PYTORCHJOB, [16, 8]),
        (ELASTIC, ["unknown", "unknown"]),
        (TRAINJOB, [8]),
        (JOB, [8]),
        (RAYJOB, [4]),
        (AZURE, [2]),
        (AZURE_EACH, [8]),
        (AZURE_EACH.replace("mpi", "pytorch"), [8]),
        (AZURE_EACH.replace("  instance_count: 2", "  {}"), [4]),
        (AZURE_EACH.replace("  process_count_per_instance: 4\n", ""), [2]),
        (DSTACK, [2]),
        (TASKFILE, [2, 3]),
        (CIRCLE, [3]),
        (COMPOSE, [2]),
    ],
)  # fmt: skip
def test_resources_that_say_how_many_processes_there_are(text: str, worlds: list[int | str]) -> None:
    found = commands(text, "x.yaml")
    assert [shown(command.world_size) for command in found] == worlds
    assert all(command.script is not None and command.script.text == "train.py" for command in found)


def test_the_plan_of_a_folder_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".vscode").mkdir()
    task = '{"tasks": [{"command": "torchrun --nproc_per_node 2 train.py"}]}\n'
    files = {"pyproject.toml": POE, "pixi.toml": PIXI, "tox.ini": TOX, "justfile": JUST, "n.ipynb": NOTEBOOK,
             "package.json": PACKAGE, ".vscode/tasks.json": task, "job.yaml": RAYJOB}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    planned = plan_paths(["."], Settings())
    assert {plan.command.location.path for plan in planned.plans if plan.command is not None} == set(files) - {
        "train.py"
    }


RUNNERS = [
    ("poe", ["poe", "a"], "pyproject.toml", POE, 0),
    ("poe", ["poe", "c"], "pyproject.toml", POE, 2),
    (
        "pdm",
        ["pdm", "run", "b"],
        "pyproject.toml",
        PDM.replace("[tool", '[project]\nname = "x"\nversion = "1"\n[tool', 1),
        1,
    ),
    ("just", ["just", "script"], "justfile", JUST.replace(": build", ":"), 1),
    ("just", ["just", "train", "3"], "justfile", JUST.replace(": build", ":"), 0),
    ("task", ["task", "a"], "pyproject.toml", "[tool.taskipy.tasks]\n" + POE.split("\n", 1)[1].split("\nb")[0], 0),
    ("make", ["make", "a"], "Makefile", "a:\n\t@torchrun --nproc_per_node 2 train.py\n", 0),
]


@pytest.mark.parametrize(("program", "words", "name", "text", "which"), RUNNERS)
def test_runners_start_what_dslint_reads(
    program: str, words: list[str], name: str, text: str, which: int, tmp_path: Path
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "sub").mkdir()
    (tmp_path / "bin").mkdir()
    recorder = tmp_path / "bin" / "torchrun"
    recorder.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(tmp_path / 'seen.json')!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))\n"
    )
    recorder.chmod(0o755)
    (tmp_path / name).write_text(text)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)}, capture_output=True, timeout=60
    )
    assert (tmp_path / "seen.json").exists(), (done.stdout + done.stderr).decode()[-500:]
    argv, environment, folder = json.loads((tmp_path / "seen.json").read_text())
    command = commands(text, name)[which]
    known = [word.text for word in command.argv[1:]]
    assert all(said in (None, real) for said, real in zip(known, argv, strict=False))
    assert len([word for word in command.argv[1:] if not word.spreads]) <= len(argv) + 1
    assert all(environment.get(n) == fact.get() for n, fact in command.env.items() if fact.is_known)
    assert folder == str(tmp_path / command.cwd.get_or(""))
