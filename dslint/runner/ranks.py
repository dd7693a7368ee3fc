"""Which process of a job this is, by the variables that launchers set; the launch that the variables tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Variables with the rank, those with the number of ranks, and with the rank on this machine: of torchrun, deepspeed,
# accelerate and platforms; Open MPI; MPICH and Intel MPI; srun.
_RANKS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of several. ``kills``: when it ends with an error its launcher ends the others of its machine."""

    rank: int = 0
    local: int = 0
    kills: bool = False

    @property
    def reports(self) -> bool:
        """It is the one that speaks for all."""
        return self.rank == 0

    @property
    def judges(self) -> bool:
        """It has to look itself: else it would go on and wait for the others when these stop."""
        return self.rank == 0 or self.local == 0 or not self.kills


def rank_of(environ: Mapping[str, str]) -> Rank:
    """The process that has this environment; the only one where no launcher tells of more."""
    for rank, size, local in _RANKS:
        # A rank alone is a leftover: a launcher says of how many ranks it is one.
        if _number(environ, rank) is not None and (_number(environ, size) or 0) > 1:
            is_step = rank == "SLURM_PROCID"
            kills = not is_step or environ.get("SLURM_KILL_BAD_EXIT") == "1"
            return Rank(_number(environ, rank) or 0, _number(environ, local) or 0, kills)
    # On the other nodes of a job of Slurm, where somebody starts this by pdsh or with one task a step.
    return Rank(_number(environ, "SLURM_PROCID") or 0, kills=False)


def task_launcher(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The words of the launcher that has started this process as one of several tasks; none where it is alone.

    A command that starts such a launcher itself is no task of one.
    """
    if argv and argv[0].rpartition("/")[2] in ("srun", "sbatch", "salloc", "mpirun", "mpiexec", "horovodrun"):
        return []
    tasks, nodes = _number(environ, "SLURM_STEP_NUM_TASKS"), _number(environ, "SLURM_STEP_NUM_NODES")
    if tasks is not None and tasks > 1:
        return ["srun", *([f"--nodes={nodes}"] if nodes else []), f"--ntasks={tasks}"]
    size, local = _number(environ, "OMPI_COMM_WORLD_SIZE"), _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    size = size if size is not None else _number(environ, "PMI_SIZE")
    if size is not None and size > 1:
        return ["mpirun", "-np", str(size), *(["-npernode", str(local)] if local else [])]
    return []


def script_launch(
    argv: Sequence[str], environ: Mapping[str, str], module: str | None = None, python: str = "python"
) -> list[str]:
    """The launch of a script that runs already, from its ``sys.argv`` and the variables that its launcher has set.

    ``module`` is its dotted name where ``-m`` has started it.
    """
    script = ["-m", module] if module else [argv[0]]
    world, local = _number(environ, "WORLD_SIZE"), _number(environ, "LOCAL_WORLD_SIZE")
    if "TORCHELASTIC_RUN_ID" in environ and world and local and world % local == 0:
        return ["torchrun", f"--nnodes={world // local}", f"--nproc-per-node={local}", *script, *argv[1:]]
    each = _number(environ, "LOCAL_SIZE")
    if "CROSS_RANK" in environ and world and each and world % each == 0:  # deepspeed sets both
        nodes = [f"--num_nodes={world // each}"] if world > each else []
        words = [word for word in argv[1:] if not word.startswith("--local_rank=")]
        script = ["--module", module] if module else script
        flags = [f"--num_gpus={each}", *(["--no_local_rank"] if len(words) == len(argv) - 1 else [])]
        return ["deepspeed", *nodes, *flags, *script, *words]
    plain = [python, *script, *argv[1:]]
    return [*task_launcher(plain, environ), *plain]


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
