"""A script that joins the job only when its own argument ``--launcher`` says how.

torchrun starts the processes; each reads ``--launcher`` in the way of mmengine: with ``none`` it makes no process group
and takes itself for the only one, with ``pytorch`` it reads ``RANK``, with ``slurm`` ``SLURM_PROCID``, with ``mpi``
``OMPI_COMM_WORLD_RANK``. As written the argument is missing, or names another launcher; as fixed it is the right one.

mmengine itself is not run: the script does what its ``init_dist`` does, over gloo. For srun and mpirun the processes of
torchrun get the variables that those set, in place of torchrun's. The processes are counted, and the samples that each
takes for its own; that the first collective then waits for 1800 s is shown by ``group-made-late``.
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_ALONE = Expect((Kind.WRONG,), r"each in a world of 1")
_OTHER = Expect((Kind.WRONG,), r"each ends with KeyError: '(?:SLURM_PROCID|RANK|OMPI_COMM_WORLD_RANK)'")
_BOTH = ("DSL404", "DSL352")

EXPERIMENT = Experiment(
    name="launcher-not-told",
    summary="the processes of a launcher each train alone, because nobody tells the script that there is a launcher",
    ranks=1,
    proxy=True,
    expect=_ALONE,
    cases=(
        Case("torchrun", {"by": "torchrun", "given": "", "needed": "pytorch", "world": 2}, rules=_BOTH),
        Case("srun", {"by": "srun", "given": "", "needed": "slurm", "world": 2}, rules=_BOTH),
        Case("mpirun", {"by": "mpirun", "given": "", "needed": "mpi", "world": 2}, rules=_BOTH),
        Case(
            "slurm-under-torchrun",
            {"by": "torchrun", "given": "slurm", "needed": "pytorch", "world": 2},
            _OTHER,
            rules=("DSL404",),
        ),
        Case(
            "pytorch-under-srun",
            {"by": "srun", "given": "pytorch", "needed": "slurm", "world": 2},
            _OTHER,
            rules=("DSL404",),
        ),
        # Inconclusive and not NOT REPRODUCED: the script stands in for mmengine.
        Case(
            "one-process",
            {"by": "torchrun", "given": "", "needed": "pytorch", "world": 1},
            rules=_BOTH,
            verdict=Verdict.INCONCLUSIVE,
        ),
    ),
)

_SAMPLES = 8
# The worker: what its launcher would have set, what mmengine reads of it, and the share of the data that follows.
_SCRIPT = """
import argparse
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
launcher = parser.parse_args().launcher
scheduler = {"srun": ("SLURM_PROCID", "SLURM_NTASKS"), "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")}
if os.environ["STARTED_BY"] in scheduler:
    for name, own in zip(scheduler[os.environ["STARTED_BY"]], ("RANK", "WORLD_SIZE")):
        os.environ[name] = os.environ.pop(own)
    del os.environ["LOCAL_RANK"]
read = {"pytorch": ("RANK", "WORLD_SIZE"), "slurm": scheduler["srun"], "mpi": scheduler["mpirun"]}
try:
    if launcher != "none":
        rank, size = (os.environ[name] for name in read[launcher])
        os.environ.update(RANK=rank, WORLD_SIZE=size)
        dist.init_process_group("gloo")
    group = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    note(world=group[1], samples=list(range(group[0], SAMPLES, group[1])))
except KeyError as error:
    note(error="KeyError: " + str(error))
"""


def written(rank: RankApi) -> Json:
    """The argument as it is given."""
    return _run(rank, rank.params["given"])


def fixed(rank: RankApi) -> Json:
    """``--launcher`` names the launcher."""
    return _run(rank, rank.params["needed"])


def _run(rank: RankApi, given: str) -> Json:
    from dslint.probe.parts.launcher import torchrun

    os.environ["STARTED_BY"] = rank.params["by"]
    words = ["--nproc_per_node", str(min(rank.params["world"], 4)), "train.py"]
    told = ["--launcher", given] if given else []
    notes = torchrun(rank, [*words, *told], _SCRIPT.replace("SAMPLES", str(_SAMPLES)))
    return [{name: note.get(name) for name in ("world", "samples", "error")} for note in notes]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Processes that do not know of each other, or that find none of the variables they look for."""
    notes, wanted = values[0], len(reference[0])
    errors = {note["error"] for note in notes}
    if None not in errors:
        return f"{len(notes)} processes, each ends with {' or '.join(sorted(errors))}"
    if len(notes) == wanted and all(note["world"] == wanted for note in notes):
        return None
    seen = sum(len(note["samples"]) for note in notes)
    return (
        f"{len(notes)} processes, each in a world of 1: each prepares and trains on all {_SAMPLES} samples,"
        f" {seen} in all where {_SAMPLES} are needed"
    )


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Who starts the processes, how many, and what the script is told."""
    finding = subject.finding
    by, given, world = finding.fact("by"), finding.fact("given"), finding.fact("world")
    by = by if by in ("srun", "mpirun") else "torchrun"
    given = given if given in ("pytorch", "slurm") else ""
    if case.name != (f"{given}-under-{by}" if given else by):
        return None
    return {"given": given, "world": max(2, world) if isinstance(world, int) else 2}
