"""Steps of several programs, and jobs of several parts: Slurm's ``srun a : b`` and ``hetjob``, MPI's ``a : b``."""

from __future__ import annotations

import pytest
from launch_helpers import shown

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs

_JOB = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:1\n#SBATCH hetjob\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\n"


def commands(text: str) -> list[LaunchCommand]:
    docs = read_launch_docs(SourceFile("run.sh", text), "shell")
    return [command for doc in docs for command in doc.commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "srun -n 1 python head.py : -n 8 python train.py --lr 1",
            [("head.py", [], 9), ("train.py", ["--lr", "1"], 9)],
        ),
        ("mpirun -np 2 python a.py : -np 6 python b.py", [("a.py", [], 8), ("b.py", [], 8)]),
        ("nohup srun python a.py : -n 2 python b.py &", [("a.py", [], "unknown"), ("b.py", [], "unknown")]),
        ("srun -n 1 redis-server : -n 2 python b.py", [("b.py", [], "unknown")]),
        ("srun -n 2 python a.py 'x : y'", [("a.py", ["x : y"], 2)]),
    ],
)
def test_each_program_of_a_step_is_a_command(line: str, expected: list[tuple[str, list[str], int | str]]) -> None:
    found = commands(f"#!/bin/bash\n{line}\n")
    seen = [(c.script and c.script.text, [w.text for w in c.script_args], shown(c.world_size)) for c in found]
    assert seen == expected


def test_the_directives_are_those_of_the_first_part() -> None:
    (command,) = commands(_JOB + "srun python head.py\n")
    assert command.env["SBATCH_NODES"].get() == "1"
    assert shown(command.world_size) == 1


def test_a_step_on_another_part_does_not_take_the_directives_of_the_first() -> None:
    (command,) = commands(_JOB + "srun --het-group=1 python train.py\n")
    assert command.script is not None
    assert command.script.text == "train.py"
    assert shown(command.world_size) == "unknown"


def test_a_launcher_in_a_part_counts_for_itself() -> None:
    head, trains = commands(_JOB + "srun --het-group=0 python head.py : --het-group=1 torchrun --nnodes 4 train.py\n")
    assert shown(head.world_size) == "unknown"
    assert (trains.launcher, trains.outer, shown(trains.world_size)) == ("torchrun", "srun", 4)
