"""Which rank of which world is this process, by what the launcher put into the environment."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from dslint.probe.arms import ProbeError

# slurm.h numbers the batch step and the interactive step of salloc from here; they are one process, not one a rank.
_SPECIAL_STEPS = 0xFFFFFFF0
# Below the range from which Linux takes ports for outgoing connections (32768 and up).
_PORTS = (20000, 10000)
# The leader takes the first free port of so many.
TRIES = 16


@dataclass(frozen=True, slots=True)
class Launched:
    """A process of a launch.

    Attributes:
        launcher: its name, for people.
        local: number of this process on its host; ``local_world``: how many there are (0: not said).
        address: name or IP of the host of rank 0.
        port: the first of the :data:`TRIES` ports at which the leader may listen.
        secret: what all processes of the launch know; ``DSLINT_PROBE_TOKEN``, or the id of the run, which keeps two
            runs apart but which others on the cluster may know.
    """

    launcher: str
    rank: int
    world: int
    local: int
    local_world: int
    address: str
    port: int
    secret: str


def launched(env: Mapping[str, str] = os.environ) -> Launched | None:
    """What the launcher says; ``None`` when this process runs alone.

    torchrun and deepspeed set RANK, WORLD_SIZE and MASTER_ADDR; srun SLURM_PROCID and the size and hosts of the step;
    mpirun of Open MPI the OMPI_COMM_WORLD variables.

    Raises:
        ProbeError: the variables make no sense together, or do not say where rank 0 is.
    """
    names = _names(env)
    if names is None:
        return None
    launcher, rank_name, world_name, local_name, local_world_name = names
    rank, world = _number(env, rank_name), _number(env, world_name)
    if world == 1 and rank == 0:
        return None
    if rank >= world:
        raise ProbeError(f"{rank_name} is {rank} and {world_name} is {world}: ranks count from 0 to {world_name} - 1")
    local_world = _number(env, local_world_name, 0)
    run = _run_id(env)
    return Launched(
        launcher, rank, world, _number(env, local_name, 0), local_world, _address(env, launcher, local_world == world),
        _port(env, run), env.get("DSLINT_PROBE_TOKEN") or run,
    )  # fmt: skip


def _names(env: Mapping[str, str]) -> tuple[str, str, str, str, str] | None:
    if "RANK" in env and "WORLD_SIZE" in env:
        if "TORCHELASTIC_RUN_ID" in env:
            return "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
        launcher = "deepspeed" if "CROSS_RANK" in env else "the environment"
        return launcher, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE" if launcher == "deepspeed" else ""
    world = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    step = env.get("SLURM_STEP_ID", "")
    if "SLURM_PROCID" in env and world in env and not (step.isdecimal() and int(step) >= _SPECIAL_STEPS):
        return "srun", "SLURM_PROCID", world, "SLURM_LOCALID", ""
    if "OMPI_COMM_WORLD_RANK" in env and "OMPI_COMM_WORLD_SIZE" in env:
        prefix = "OMPI_COMM_WORLD_"
        return "mpirun", f"{prefix}RANK", f"{prefix}SIZE", f"{prefix}LOCAL_RANK", f"{prefix}LOCAL_SIZE"
    return None


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "")
    if text == "" and default is not None:
        return default
    if not text.isdecimal():
        raise ProbeError(f"{name} must be a whole number, found `{text}`")
    return int(text)


def _run_id(env: Mapping[str, str]) -> str:
    """An id that all processes of a launch share, and no other launch on the same hosts."""
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
    return "/".join([*(env.get(name, "") for name in names), env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")])


def _address(env: Mapping[str, str], launcher: str, one_host: bool) -> str:
    if env.get("MASTER_ADDR"):
        return env["MASTER_ADDR"]
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    if launcher == "srun" and nodes:
        return first_host(nodes)
    if one_host:
        return "127.0.0.1"
    raise ProbeError(f"{launcher} does not say where rank 0 is: set MASTER_ADDR to the name of its host")


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it: ``gpu[003-007,9],login1`` -> ``gpu003``."""
    depth, end = 0, len(nodes)
    for place, letter in enumerate(nodes):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            end = place
            break
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", nodes[:end])


def _port(env: Mapping[str, str], run: str) -> int:
    if env.get("DSLINT_PROBE_PORT"):
        return _number(env, "DSLINT_PROBE_PORT")
    if env.get("MASTER_PORT"):
        # Next to it, not on it: under torchrun the agent's own store listens there.
        port = _number(env, "MASTER_PORT") + 1
        return port if port + TRIES < 65536 else port - 2 * TRIES
    return _PORTS[0] + zlib.crc32(run.encode()) % _PORTS[1]
