"""Launch commands in files that are no shell scripts: what runs there, with which words, variables and places."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile
from dslint.engine.discovery import kind_of
from dslint.engine.run import check_paths
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import SNIPPETS, read_launch_docs
from dslint.model.launch.sources.dockerfile import dockerfile_snippets
from dslint.model.launch.sources.pythonfile import python_snippets
from dslint.settings import Settings

MAKEFILE = """\
GPUS := 4
PORT ?= 29501
WORLD = $(GPUS)
TOOL = $(shell which torchrun)
export OMP_NUM_THREADS = 4

train: data
\t@echo torchrun starts
\t@CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node $(WORLD) --master_port $(PORT) \\
\t  train.py --out $$HOME/run --tool $(TOOL) --target $@

one:
\t-cd sub && deepspeed --num_gpus=2 train.py --user $USER
"""
DOCKERFILE = """\
FROM base AS first
CMD ["deepspeed", "old.py"]
FROM base
ARG GPUS=2
ENV CUDA_VISIBLE_DEVICES=0,1 NAME="a b"
ENV MODE fast
RUN --mount=type=cache,target=/root pip install deepspeed && \\
    # between the lines
    python -m torch.distributed.run --nproc_per_node $GPUS prepare.py
ENTRYPOINT ["torchrun", "--nproc_per_node=2"]
CMD ["old.py"]
CMD ["train.py", "--lr", "1"]
"""
WORKFLOW = """\
on: push
env: {CUDA_VISIBLE_DEVICES: "0,1", TOKEN: "${{ secrets.T }}"}
jobs:
  test:
    defaults: {run: {working-directory: train}}
    steps:
      - uses: actions/checkout@v4
      - name: two lines
        env: {N: 2}
        run: |
          echo torchrun
          torchrun --nproc_per_node $N --nnodes ${{ matrix.nodes }} \\
            train.py
      - {run: "deepspeed --num_gpus 2 a.py", working-directory: other}
      - run: >
          accelerate launch --num_processes 2
          b.py --x 1
"""
GITLAB = """\
variables: {GPUS: "2"}
train:
  variables: {MODE: fast}
  script:
    - pip install torch
    - torchrun --nproc_per_node $GPUS train.py
"""
COMPOSE = """\
services:
  list:
    environment: [CUDA_VISIBLE_DEVICES=0, EMPTY]
    entrypoint: ["torchrun"]
    command: ["--nproc_per_node", "4", "train.py"]
  text:
    command: bash -c 'torchrun --nproc_per_node 3 train.py'
"""
KUBERNETES = """\
apiVersion: v1
kind: ConfigMap
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  replicas:
    Worker:
      template:
        spec:
          containers:
          - command: ["/bin/bash", "-lc"]
            args:
            - |
              torchrun --nnodes 2 --nproc_per_node $GPUS train.py
            env: [{name: GPUS, value: "8"}, {name: SECRET, valueFrom: {}}]
          - command: [torchrun, --nproc_per_node, $(GPUS), train.py]
"""
SKYPILOT = """\
num_nodes: 2
envs: {GPUS: 8}
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $GPUS train.py
"""
PYTHON = """\
import os, subprocess, sys
subprocess.run(["torchrun", "--nproc_per_node", "4", "train.py", *extra, f"--lr={lr}"], check=True)
os.system(f"CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 2 train.py {more} --name run-{number}")
subprocess.check_call([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "é.py"] + rest)
subprocess.run(command, shell=True)
subprocess.Popen("torchrun --nproc_per_node 2 c.py".split(), cwd=folder)
print("torchrun --nproc_per_node 9 no.py")
"""
VSCODE = """\
{ // comments are allowed here
  "configurations": [
    {"type": "debugpy", "request": "launch", "module": "torch.distributed.run",
     "args": ["--nproc_per_node", "4", "${workspaceFolder}/train.py", "${input:x}"],
     "env": {"CUDA_VISIBLE_DEVICES": "0,1"}},
    {"type": "debugpy", "request": "attach", "module": "torch.distributed.run"},
    {"type": "node", "request": "launch", "program": "torchrun.py"}
  ]
}
"""


def commands(text: str, kind: str, path: str = "file") -> list[LaunchCommand]:
    docs = read_launch_docs(SourceFile(path, text), kind)
    return [c for doc in docs for c in doc.commands]


def words(command: LaunchCommand) -> list[str | None]:
    return [w.text for w in command.words]


def line(command: LaunchCommand) -> int:
    return command.location.region.line


def test_make_fills_its_variables_in_before_the_shell_reads_a_recipe() -> None:
    first, second = commands(MAKEFILE, "makefile")
    assert words(first)[:6] == ["torchrun", "--nproc_per_node", "4", "--master_port", "29501", "train.py"]
    assert words(first)[6:] == ["--out", None, "--tool", None, "--target", None]
    assert first.variable("OMP_NUM_THREADS").get() == "4"
    assert first.variable("CUDA_VISIBLE_DEVICES").get() == "0,1"
    assert (line(first), first.processes_per_node.get()) == (9, 4)
    assert first.words[2].origins[0].region.line == 3
    assert words(second)[:3] == ["deepspeed", "--num_gpus=2", "train.py"]
    assert words(second)[4] is None, "make reads $U and the text SER"
    assert second.cwd.get() == "sub"


def test_a_container_starts_the_last_entry_point_with_the_last_command() -> None:
    old, run, start = commands(DOCKERFILE, "dockerfile")
    assert words(old) == ["deepspeed", "old.py"]
    assert words(run)[-3:] == ["--nproc_per_node", "2", "prepare.py"]
    assert words(start) == ["torchrun", "--nproc_per_node=2", "train.py", "--lr", "1"]
    assert (line(old), line(run), line(start)) == (2, 9, 12)
    assert start.variable("CUDA_VISIBLE_DEVICES").get() == "0,1"
    assert start.variable("NAME").get() == "a b"
    assert start.variable("MODE").get() == "fast"
    assert start.variable("OTHER").is_unknown, "the image may set it"
    assert start.cwd.is_unknown


def test_steps_of_a_workflow_see_the_variables_around_them() -> None:
    first, second, third = commands(WORKFLOW, "yaml", ".github/workflows/ci.yml")
    assert words(first) == ["torchrun", "--nproc_per_node", "2", "--nnodes", None, "train.py"]
    assert first.variable("CUDA_VISIBLE_DEVICES").get() == "0,1"
    assert first.variable("TOKEN").is_unknown
    assert (line(first), line(second), line(third)) == (12, 14, 16)
    assert (first.cwd.get(), second.cwd.get(), third.cwd.get()) == ("train", "other", "train")
    assert words(third)[-3:] == ["b.py", "--x", "1"]
    assert first.words[-1].location.region.line == 13


def test_the_script_of_a_gitlab_job() -> None:
    (only,) = commands(GITLAB, "yaml", ".gitlab-ci.yml")
    assert words(only) == ["torchrun", "--nproc_per_node", "2", "train.py"]
    assert (line(only), only.variable("MODE").get()) == (6, "fast")


def test_services_of_compose() -> None:
    first, second = commands(COMPOSE, "yaml", "compose.yaml")
    assert words(first) == ["torchrun", "--nproc_per_node", "4", "train.py"]
    assert first.variable("CUDA_VISIBLE_DEVICES").get() == "0"
    assert (second.processes_per_node.get(), line(second)) == (3, 7)


def test_containers_of_any_resource_in_any_document() -> None:
    first, second = commands(KUBERNETES, "yaml", "job.yaml")
    assert (line(first), first.world_size.get()) == (15, 16)
    assert first.variable("PET_MASTER_ADDR").is_unknown, "the operator injects it"
    assert first.variable("SECRET").is_unknown
    assert words(second) == ["torchrun", "--nproc_per_node", None, "train.py"]


def test_the_run_of_a_skypilot_task() -> None:
    (only,) = commands(SKYPILOT, "yaml", "sky.yaml")
    assert words(only) == ["torchrun", "--nnodes", "2", "--nproc_per_node", "8", "train.py"]
    assert only.nodes.get() == 2


def test_calls_of_a_python_file() -> None:
    first, system, module, split = commands(PYTHON, "script", "go.py")
    assert words(first) == ["torchrun", "--nproc_per_node", "4", "train.py", None, None]
    assert first.may_hide_flags()
    assert system.variable("CUDA_VISIBLE_DEVICES").get() == "0,1"
    assert words(system)[-2:] == ["--name", None]
    assert words(module)[:5] == ["python", "-m", "torch.distributed.run", "--nproc_per_node=2", "é.py"]
    assert module.may_hide_flags()
    assert split.cwd.is_unknown
    assert [line(c) for c in (first, system, module, split)] == [2, 3, 4, 6]
    assert all(c.variable("ANY").is_unknown for c in (first, system, module, split))


def test_configurations_of_the_debugger() -> None:
    (only,) = commands(VSCODE, "vscode", ".vscode/launch.json")
    assert words(only)[3:] == ["--nproc_per_node", "4", "train.py", None]
    assert (line(only), only.variable("CUDA_VISIBLE_DEVICES").get()) == (3, "0,1")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Makefile", "makefile"),
        ("sub.mk", "makefile"),
        ("Dockerfile", "dockerfile"),
        ("Dockerfile.gpu", "dockerfile"),
        ("train.dockerfile", "dockerfile"),
        ("makefile.py", "script"),
        ("dockerfile.md", "markdown"),
    ],
)
def test_files_are_known_by_their_names(name: str, kind: str) -> None:
    assert kind_of(name) == kind


TEXTS = {
    "makefile": MAKEFILE,
    "dockerfile": DOCKERFILE,
    "yaml": WORKFLOW + KUBERNETES + COMPOSE,
    "script": PYTHON,
    "vscode": VSCODE,
    "justfile": 'n := "2"\nrun x:\n    torchrun --nproc_per_node {{n}} train.py {{x}}\n',
    "tasks": '[tool.poe.tasks]\na = "torchrun train.py"\nb = {cmd = ["torchrun", "b.py"], env = {A = "1"}}\n',
    "notebook": "%%bash\ntorchrun train.py\n",
}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SNIPPETS)),
    st.integers(0, 700),
    st.integers(0, 40),
    st.text("[]{}'\"|>$\\\n\t :-é\0", max_size=5),
)
def test_no_text_makes_a_reader_raise_and_places_stay_inside(kind: str, at: int, size: int, junk: str) -> None:
    text = TEXTS[kind]
    broken = text[: at % len(text)] + junk + text[at % len(text) + size :]
    for command in commands(broken, kind):
        assert 0 <= command.location.span.start <= command.location.span.end <= len(broken)


def test_findings_come_without_edits_where_the_text_is_not_what_the_shell_reads(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    monkeypatch.chdir(folder)
    (folder / "Makefile").write_text("train:\n\tCUDA_VISIBLE_DEVICES=0 deepspeed --num_nodes 1 train.py\n")
    (folder / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 deepspeed --num_nodes 1 train.py\n")
    found = check_paths(["."], Settings()).findings
    by_path = {f.location.path: f for f in found if f.code == "DSL323"}
    assert set(by_path) == {"Makefile", "run.sh"}
    assert by_path["Makefile"].fix is None
    assert by_path["run.sh"].fix is not None


def test_expressions_of_a_workflow_are_shown_as_written() -> None:
    text = (
        "jobs:\n  a:\n    steps:\n      - run: |\n          N=${{ matrix.n }}\n"
        "          torchrun --nproc_per_node ${{ matrix.gpus }} ${{ inputs.extra_args }} train.py --n $N\n"
    )
    (doc,) = read_launch_docs(SourceFile(".github/workflows/a.yml", text), "yaml")
    (command,) = doc.commands
    unknown = [word for word in command.words if word.text is None]
    assert [word.raw for word in unknown] == ["${{ matrix.gpus }}", "${{ inputs.extra_args }}", "$N"]
    assert [word.spreads for word in unknown] == [False, True, False]
    assert unknown[0].why == "`${{ matrix.gpus }}` is filled in before the shell runs"
    assert text[unknown[0].location.span.start : unknown[0].location.span.end] == "${{ matrix.gpus }}"
    assert command.hides_options


def test_escapes_of_foreign_code_are_not_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    source = SourceFile("start.py", 'import os\nos.system("torchrun \\-\\-standalone train.py")\n')
    assert list(python_snippets(source))
    assert not recwarn.list


def test_words_that_docker_run_adds_to_an_entrypoint_are_not_known() -> None:
    source = SourceFile("Dockerfile", 'FROM x\nENTRYPOINT ["torchrun", "train.py"]\n')
    (snippet,) = dockerfile_snippets(source)
    assert snippet.text.startswith("torchrun train.py $")
    with_command = SourceFile("Dockerfile", 'FROM x\nENTRYPOINT ["torchrun", "train.py"]\nCMD ["--lr", "1"]\n')
    (snippet,) = dockerfile_snippets(with_command)
    assert "$" not in snippet.text
