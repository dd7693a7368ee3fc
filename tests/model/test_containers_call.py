"""Scripts of the project that a container runs: with their arguments, and with the GPUs that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.workspace import Workspace

_SCRIPT = "torchrun --nproc_per_node $2 train.py --config $1\n"


def called(line: str) -> list[LaunchCommand]:
    text = f"#!/bin/bash\n{line}\n"
    workspace = Workspace(Path("/nonexistent"), {"start.sh": text, "train.py": "", "jobs/run.sh": _SCRIPT})
    docs = read_launch_docs(SourceFile("start.sh", text), "shell", workspace)
    return [command for doc in docs for command in (*doc.commands, *doc.called)]


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("docker run --gpus all image sh jobs/run.sh c.json 8", ""),
        ("docker run --gpus 2 -v $PWD:/w image bash /w/jobs/run.sh c.json 8", "2"),
        ("docker run --gpus '\"device=1,3\"' image sh -c 'bash jobs/run.sh c.json 8'", "2"),
        ("docker compose run trainer ./jobs/run.sh c.json 8", ""),
        ("singularity exec --nv image.sif bash jobs/run.sh c.json 8", ""),
    ],
)
def test_a_container_hands_arguments_and_gpus_to_a_script(line: str, gpus: str) -> None:
    (command,) = called(line)
    assert shown(command.world_size) == 8
    assert [word.text for word in command.script_args] == ["--config", "c.json"]
    assert (command.env["MACHINE_GPUS"].get() if "MACHINE_GPUS" in command.env else "") == gpus


def test_another_machine_has_other_gpus() -> None:
    text = "docker run --gpus 2 image ssh host 'torchrun --nproc_per_node 8 train.py'"
    assert [c for c in called(text) if "MACHINE_GPUS" in c.env] == []
