"""Directives of batch scripts: what they ask of PBS and LSF, and what the commands see of it."""

from __future__ import annotations

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import read_launch_docs
from dslint.model.shell.batchjob import is_directive


def command(lines: str, run: str = "torchrun --nproc_per_node 4 train.py") -> LaunchCommand:
    docs = read_launch_docs(SourceFile("job.sh", f"#!/bin/bash\n{lines}\n{run}\n"), "shell")
    return docs[0].commands[0]


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (
            "#PBS -l nodes=2:ppn=8:gpus=4",
            {"PBSJOB_NODES": "2", "PBSJOB_TASKS_PER_NODE": "8", "PBSJOB_GPUS_PER_NODE": "4"},
        ),
        ("#PBS -l select=2:ncpus=16:ngpus=4", {"PBSJOB_CHUNKS": "2"}),
        (
            "#PBS -l select=2:ncpus=16:mpiprocs=4:ngpus=4\n#PBS -l place=scatter:excl",
            {
                "PBSJOB_NODES": "2",
                "PBSJOB_TASKS_PER_NODE": "4",
                "PBSJOB_GPUS_PER_NODE": "4",
                "PBSJOB_ALONE": "1",
            },
        ),
        ("#PBS -J 0-9%1", {"PBSJOB_ARRAY": "0-9%1"}),
        ("#SBATCH --array=0-7%2", {"SBATCH_ARRAY": "0-7%2"}),
        (
            "#SBATCH -a 1,3 --exclusive -d singleton",
            {"SBATCH_ARRAY": "1,3", "SBATCH_ALONE": "1", "SBATCH_DEPENDENCY": "singleton"},
        ),
        ("#SBATCH --mem=0", {"SBATCH_ALONE": "1"}),
        ("#SBATCH --exclusive=user --mem=64G", {}),
        ("#BSUB -J train[1-8]%1\n#BSUB -x", {"BSUB_ARRAY": "1-8]%1", "BSUB_ALONE": "-x"}),
        ("#PBS -l select=1:ngpus=4+1:ngpus=2", {}),
        ("#PBS -l walltime=01:00:00\n#PBS -N train", {}),
        (
            '#BSUB -n 16\n#BSUB -R "span[ptile=8] rusage[mem=4]"\n#BSUB -gpu "num=8:mode=shared"',
            {"BSUB_SLOTS": "16", "BSUB_SLOTS_PER_HOST": "8", "BSUB_GPUS_PER_HOST": "8"},
        ),
        ("#BSUB -nnodes 4\n#BSUB -n 4,8", {"BSUB_NODES": "4"}),
    ],
)
def test_directives_are_facts_of_the_job(lines: str, facts: dict[str, str]) -> None:
    found = {name: fact for name, fact in command(lines).env.items() if is_directive(name)}
    assert {name: fact.get() for name, fact in found.items()} == facts
    assert all(fact.origins[0].region.line >= 2 for fact in found.values())


def test_the_queue_sets_variables_for_the_commands() -> None:
    run = "torchrun --nnodes $PBS_NUM_NODES --nproc_per_node $PBS_NUM_PPN train.py"
    started = command("#PBS -l nodes=2:ppn=8", run)
    assert (started.nodes.get(), started.processes_per_node.get()) == (2, 8)
    assert command("#PBS -l select=2:mpiprocs=8", run).nodes.is_unknown
    assert command("#BSUB -n 16", "mpirun -n $LSB_DJOB_NUMPROC python train.py").world_size.get() == 16
