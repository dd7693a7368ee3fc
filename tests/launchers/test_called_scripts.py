"""Scripts of the project that other files call: read once more with the arguments and variables of the call."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.engine.inputs import LaunchFile
from dslint.engine.launchstage import LaunchReader
from dslint.model.firstlook import may_call
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.workspace import Workspace

DIST_TRAIN = """\
#!/usr/bin/env bash
CONFIG=$1
GPUS=$2
PORT=${PORT:-29500}
python -m torch.distributed.launch --nproc_per_node=$GPUS --master_port=$PORT \\
    $(dirname "$0")/train.py $CONFIG --launcher pytorch ${@:3}
"""
TRAIN = "torchrun --nnodes ${NNODES:-1} --nproc_per_node ${1:-8} train.py --stage ${2:-zero2}\n"


def called(files: dict[str, str], path: str = "run.sh") -> list[LaunchCommand]:
    kinds = {"README.md": "markdown", "Makefile": "makefile", ".github/workflows/ci.yml": "yaml"}
    kind = kinds.get(path, "shell")
    workspace = Workspace(Path("/nonexistent"), files)
    docs = read_launch_docs(SourceFile(path, files[path]), kind, workspace)
    return [command for doc in docs for command in doc.called]


def texts(command: LaunchCommand) -> list[str | None]:
    return [word.text for word in command.words]


def test_the_arguments_of_a_call_are_bound() -> None:
    files = {"run.sh": "./tools/dist_train.sh configs/a.py 8 --seed 1\n", "tools/dist_train.sh": DIST_TRAIN}
    (command,) = called(files)
    assert shown(command.world_size) == 8
    assert [w.text for w in command.script_args] == ["configs/a.py", "--launcher", "pytorch", "--seed", "1"]
    assert command.script is not None
    assert command.script.text == "tools/train.py"
    assert str(command.location) == "tools/dist_train.sh:5"
    assert [str(place) for place in command.called_from] == ["run.sh:1"]
    # What a word comes from leads to the call.
    (count,) = (f.value for f in command.launcher_flags if f.name == "--nproc_per_node")
    assert count is not None
    assert "run.sh:1" in [str(place) for place in count.origins]


def test_the_script_alone_is_read_as_before() -> None:
    files = {"run.sh": "bash train.sh 4\n", "train.sh": "torchrun --nproc_per_node $1 train.py\n"}
    workspace = Workspace(Path("/nonexistent"), files)
    (doc,) = read_launch_docs(SourceFile("train.sh", files["train.sh"]), "shell", workspace)
    assert [shown(c.world_size) for c in doc.commands] == ["unknown"]
    assert doc.called == ()
    assert [shown(c.world_size) for c in called(files)] == [4]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("bash scripts/train.sh 4 zero3", (1, 4, "zero3")),
        ("bash -x scripts/train.sh 4", (1, 4, "zero2")),
        ("sh scripts/train.sh '4' \"zero3\" more", (1, 4, "zero3")),
        ("export NNODES=2\nbash scripts/train.sh", (2, 8, "zero2")),
        ("NNODES=2 bash scripts/train.sh 4", (2, 4, "zero2")),
        ("nohup bash scripts/train.sh 4 > log 2>&1 &", (1, 4, "zero2")),
        ("S=scripts/train.sh\nbash $S 4", (1, 4, "zero2")),
        ("cd scripts && bash train.sh 4", (1, 4, "zero2")),
        ("bash scripts/train.sh $GPUS zero3", (1, "unknown", "zero3")),
        ("sbatch scripts/train.sh 4", (1, 4, "zero2")),
        ("NNODES=2\nbash scripts/train.sh 4", ("unknown", 4, "zero2")),
    ],
)
def test_calls(call: str, expected: tuple[object, ...]) -> None:
    (command,) = called({"run.sh": call + "\n", "scripts/train.sh": TRAIN})
    stage = command.script_flag("--stage")
    assert stage is not None
    assert stage.value is not None
    assert (shown(command.nodes), shown(command.processes_per_node), stage.value.text) == expected


def test_a_variable_that_only_a_launcher_reads() -> None:
    (command,) = called({"run.sh": "NPROC_PER_NODE=4 bash train.sh\n", "train.sh": "swift sft --model x\n"})
    assert shown(command.world_size) == 4


def test_options_of_sbatch_win_over_the_directives_of_the_script() -> None:
    job = "#!/bin/bash\n#SBATCH -N 2\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node $1 t.py\n"
    (command,) = called({"run.sh": "sbatch -N 4 job.sbatch 2\n", "job.sbatch": job})
    assert (shown(command.nodes), shown(command.world_size)) == (4, 8)
    (command,) = called({"run.sh": "sbatch job.sbatch 2\n", "job.sbatch": job})
    assert (shown(command.nodes), shown(command.world_size)) == (2, 4)


def test_srun_around_a_script() -> None:
    files = {"run.sh": "srun -N 2 --ntasks-per-node 4 bash train.sh x\n", "train.sh": "python train.py $1\n"}
    (command,) = called(files)
    assert (command.launcher, shown(command.world_size)) == ("srun", 8)
    assert [w.text for w in command.script_args] == ["x"]


def test_calls_of_calls() -> None:
    files = {
        "run.sh": "bash a.sh 4\n",
        "a.sh": "bash b.sh zero3 $1\n",
        "b.sh": "torchrun --nproc_per_node $2 t.py $1\n",
    }
    (command,) = called(files)
    assert texts(command) == ["torchrun", "--nproc_per_node", "4", "t.py", "zero3"]
    assert [str(place) for place in command.called_from] == ["run.sh:1", "a.sh:1"]


def test_a_fence_of_markdown_calls_too() -> None:
    files = {"README.md": "```bash\nbash scripts/train.sh 4\n```\n", "scripts/train.sh": TRAIN}
    (command,) = called(files, "README.md")
    assert command.in_docs
    assert shown(command.world_size) == 4


@pytest.mark.parametrize(
    ("call", "script"),
    [
        ("bash train.sh", TRAIN),  # hands nothing over
        ("bash train.sh $1", TRAIN),
        ("bash other.sh 4", TRAIN),
        ("bash $SCRIPT 4", TRAIN),
        ("bash /opt/train.sh 4", TRAIN),
        ("ssh host bash train.sh 4", TRAIN),  # another machine, with files of its own
        ("bash train.sh 4", "echo $1\n"),
        ("A=1 bash train.sh 4", "torchrun --nproc_per_node 4 t.py\n"),  # reads nothing of it
        ("bash train.sh 4", "bash run.sh $1\n"),  # for ever
        ("bash train.sh 4", "bash train.sh $1\n"),
        # It chooses among many commands by its arguments.
        ("bash train.sh 4", "".join(f"torchrun --nproc_per_node $1 t{n}.py\n" for n in range(20))),
    ],
)
def test_calls_that_say_nothing(call: str, script: str) -> None:
    assert called({"run.sh": call + "\n", "train.sh": script}) == []


def test_texts_that_may_call() -> None:
    assert may_call(b"bash tools/dist_train.sh a.py 8\n")
    assert may_call(b"  ./train.sh 4\n")
    assert may_call(b"sbatch -N 2 job.slurm\n")
    assert not may_call(b"# see train.sh\n")
    assert not may_call(b"source ./env\necho push\n")


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        ("Makefile", "GPUS ?= 4\ntrain:\n\tbash scripts/train.sh $(GPUS) zero3\n", "Makefile:3"),
        (
            ".github/workflows/ci.yml",
            "jobs:\n  gpu:\n    env: {N: 4}\n    steps:\n      - run: bash scripts/train.sh $N zero3\n",
            ".github/workflows/ci.yml:5",
        ),
        (
            ".github/workflows/ci.yml",
            "jobs:\n a:\n  steps:\n  - working-directory: scripts\n    run: |\n      ./train.sh 4 zero3\n",
            ".github/workflows/ci.yml:6",
        ),
    ],
)
def test_snippets_of_other_files_call_scripts(path: str, text: str, place: str) -> None:
    (command,) = called({path: text, "scripts/train.sh": TRAIN}, path)
    assert shown(command.world_size) == 4
    assert [w.text for w in command.script_args] == ["--stage", "zero3"]
    assert [str(place) for place in command.called_from] == [place]


def test_what_a_workflow_fills_in_is_not_known_in_a_called_script() -> None:
    text = "jobs:\n  gpu:\n    steps:\n      - run: bash scripts/train.sh ${{ matrix.gpus }} zero3\n"
    (command,) = called({".github/workflows/ci.yml": text, "scripts/train.sh": TRAIN}, ".github/workflows/ci.yml")
    assert shown(command.world_size) == "unknown"
    assert command.script_args[-1].text == "zero3"


def test_calls_beyond_the_limit_are_named() -> None:
    calls = "".join(f"bash train.sh {count}\n" for count in range(1, 70))
    workspace = Workspace(Path("/nonexistent"), {"run.sh": calls, "train.sh": TRAIN})
    (doc,) = read_launch_docs(SourceFile("run.sh", calls), "shell", workspace)
    assert len(doc.called) == 64
    assert [str(place) for place in doc.left_out] == [f"run.sh:{line}" for line in range(65, 70)]
    reader = LaunchReader({"run.sh": calls, "train.sh": TRAIN})
    (finding,) = reader.read(LaunchFile("run.sh", "shell", calls.encode())).findings
    assert (finding.code, finding.severity.value, str(finding.location)) == ("DSL902", "info", "run.sh:65")
