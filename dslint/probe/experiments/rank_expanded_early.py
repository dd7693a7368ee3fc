r"""`$SLURM_PROCID` in a command that `srun` runs: who expands it.

bash runs the line of a batch script with an `srun` that runs its command once for each of two tasks, with the number of
the task in `SLURM_PROCID`, and a `torchrun` that writes down what it gets. The batch script itself is task 0, as under
Slurm. As written the shell of the batch script expands the variable, and both tasks get 0; as fixed the shell of the
task does. What two nodes of the same rank do is shown by `nodes-never-meet`.
"""

from __future__ import annotations

import os
import shutil

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="rank-expanded-early",
    summary="the batch script puts its own rank into the command of all tasks",
    rules=("DSL316",),
    flavour="plain",
    ranks=1,
    expect=Expect((Kind.WRONG,), r"the tasks get the node ranks 0, 0 instead of 0, 1"),
    cases=(
        Case("double-quotes", {"line": 'srun bash -c "torchrun --node_rank $SLURM_PROCID train.py"'}),
        Case("no-quotes", {"line": "srun torchrun --node_rank $SLURM_PROCID train.py"}),
        Case("by-a-variable", {"line": "R=$SLURM_PROCID; srun torchrun --node_rank $R train.py"}),
        Case(
            "escaped",
            {"line": 'srun bash -c "torchrun --node_rank \\$SLURM_PROCID train.py"'},
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)
_RIGHT = "srun bash -c 'torchrun --node_rank $SLURM_PROCID train.py'"
_SRUN = '#!{shell}\nSLURM_PROCID=0 "$@"\nSLURM_PROCID=1 "$@"\n'
_TORCHRUN = '#!{shell}\nprintf \'%s\\n\' "$2" >> "{folder}/ranks"\n'


def written(rank: RankApi) -> Json:
    """The line as it is."""
    return _run(rank, rank.params["line"])


def fixed(rank: RankApi) -> Json:
    """Single quotes: the shell of the task expands the variable."""
    return _run(rank, _RIGHT)


def _run(rank: RankApi, line: str) -> Json:
    bash = shutil.which("bash") or "/bin/bash"
    programs = os.path.abspath("programs")
    os.makedirs(programs, exist_ok=True)
    for name, text in (("srun", _SRUN), ("torchrun", _TORCHRUN), ("bash", '#!{shell}\nexec {shell} "$@"\n')):
        with open(os.path.join(programs, name), "w", encoding="utf-8") as file:
            file.write(text.format(shell=bash, folder=programs))
        os.chmod(os.path.join(programs, name), 0o700)
    with open("job.sh", "w", encoding="utf-8") as file:
        file.write(line + "\n")
    ran = rank.command(
        [bash, "--noprofile", "--norc", "job.sh"], {"PATH": programs, "SLURM_PROCID": "0"}, patience=10.0
    )
    if ran["rc"]:
        raise RuntimeError(ran["err"])
    with open(os.path.join(programs, "ranks"), encoding="utf-8") as file:
        return file.read().split()


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The node ranks that the tasks get."""
    got, wanted = values[0], reference[0]
    return None if got == wanted else f"the tasks get the node ranks {', '.join(got)} instead of {', '.join(wanted)}"
