"""The environment of a launch: the variables that a launcher reads, sets for its processes, and hands over."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.launchers.base import ASSIGNMENT, Parsed, last
from dslint.model.shell.batchjob import is_directive

_TORCHRUN_SETS = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK"
    " ROLE_WORLD_SIZE ROLE_NAME OMP_NUM_THREADS"
)
_TORCHRUN_READS = "PET_* OMP_NUM_THREADS PYTHON_EXEC"
# torch 2.13 ``torch/distributed/elastic/agent/server/local_elastic_agent.py`` and ``argparse_util.py``; deepspeed
# 0.19.8 ``launcher/launch.py`` and ``runner.py``; accelerate 1.15 ``utils/launch.py``; Slurm 23.11; Open MPI 4;
# XTuner ``entry_point.py``; ms-swift 4 ``swift/cli/main.py``; LLaMA-Factory ``launcher.py``; MosaicML Composer 0.32
# ``cli/launcher.py``; Horovod 0.28 ``runner/gloo_run.py``.
SETS: Mapping[str, frozenset[str]] = {
    name: frozenset(text.split())
    for name, text in {
        "torchrun": _TORCHRUN_SETS,
        "deepspeed": "RANK LOCAL_RANK WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE MASTER_ADDR MASTER_PORT"
        " CUDA_VISIBLE_DEVICES",
        "accelerate": _TORCHRUN_SETS,
        "srun": "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS SLURM_STEP_ID",
        "mpirun": "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE"
        " PMI_RANK PMI_SIZE",
        "xtuner": _TORCHRUN_SETS,
        "swift": _TORCHRUN_SETS,
        "llamafactory": _TORCHRUN_SETS,
        "axolotl": _TORCHRUN_SETS,
        "trl": _TORCHRUN_SETS,
        "colossalai": _TORCHRUN_SETS,
        "composer": "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT",
        "horovodrun": "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE",
        "lightning": "LOCAL_RANK NODE_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT",
    }.items()
}
READS: Mapping[str, frozenset[str]] = {
    name: frozenset(text.split())
    for name, text in {
        "torchrun": _TORCHRUN_READS,
        "deepspeed": "CUDA_VISIBLE_DEVICES DS_ENV_FILE DS_ACCELERATOR",
        "accelerate": f"{_TORCHRUN_READS} ACCELERATE_*",
        "srun": "SLURM_*",
        "xtuner": "NNODES NPROC_PER_NODE NODE_RANK ADDR PORT",
        "swift": "NNODES NPROC_PER_NODE NODE_RANK MASTER_ADDR MASTER_PORT",
        "llamafactory": "FORCE_TORCHRUN NNODES NPROC_PER_NODE NODE_RANK MASTER_ADDR MASTER_PORT MAX_RESTARTS RDZV_ID"
        " MIN_NNODES MAX_NNODES CUDA_VISIBLE_DEVICES",
        "composer": "LOCAL_WORLD_SIZE WORLD_SIZE BASE_RANK NODE_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES",
        "lightning": "NODE_RANK MASTER_ADDR MASTER_PORT",
    }.items()
}


# The variables that some launcher reads.
READ = frozenset(name for names in READS.values() for name in names)


def reads(command: LaunchCommand, name: str) -> bool:
    """Whether the launcher of a command, or the one around it, looks a variable up before its processes start."""
    names = READS.get(command.launcher, frozenset()) | READS.get(command.outer, frozenset())
    return name in names or any(n.endswith("*") and name.startswith(n[:-1]) for n in names)


def sets(command: LaunchCommand, name: str) -> bool:
    """Whether every process finds the variable set by its launcher, whatever the command has set it to."""
    return name in SETS.get(command.launcher, frozenset())


def hand_over(launcher: str, words: Sequence[Word], parsed: Parsed, env: dict[str, Fact[str]]) -> None:
    """Put into ``env`` what ``mpirun -x NAME=value``, ``-genv NAME value`` or ``srun --export=ALL,NAME=value`` sets."""
    if launcher == "srun":
        _export(parsed, env)
    elif launcher == "mpirun":
        for at, word in enumerate(words):
            following = words[at + 1] if at + 1 < len(words) else None
            if word.text == "-x" and following is not None:
                _assign(following.text, following, env)
            elif word.text in ("-genv", "-env", "--genv", "--env") and following is not None:
                value = words[at + 2] if at + 2 < len(words) else None
                glued = following.text is not None and "=" in following.text
                text = following.text if glued or value is None else f"{following.text}={value.text}"
                known_ = glued or (value is not None and value.text is not None and following.text is not None)
                _assign(text if known_ else None, following, env)


def _export(parsed: Parsed, env: dict[str, Fact[str]]) -> None:
    flag = last(parsed.flags, "--export")
    if flag is None and env.get("SLURM_EXPORT_ENV", absent()).get_or("") == "NONE":
        _keep_only(env, ())
    if flag is None or flag.value is None:
        return
    if flag.value.text is None:
        env[""] = unknown("what `--export` hands over is not known", flag.location)
        return
    parts = flag.value.text.split(",")
    if "ALL" not in parts:
        _keep_only(env, parts)
    for part in parts:
        _assign(part, flag.value, env)


def _keep_only(env: dict[str, Fact[str]], names: Collection[str]) -> None:
    """Drop all but these, and what Slurm itself sets; ``NONE`` is none."""
    for name in [n for n in env if not (is_directive(n) or n.startswith("SLURM_") or n in names)]:
        del env[name]


def _assign(text: str | None, word: Word, env: dict[str, Fact[str]]) -> None:
    match = ASSIGNMENT.fullmatch(text or "")
    if match is not None:
        env[match[1]] = known(match[2], word.location.labelled(match[0]), *word.origins)
    elif text is None and (found := re.match(r"[\"']?([A-Za-z_]\w*)=", word.raw)):
        env[found[1]] = unknown(f"`{found[1]}` is computed", word.location)
