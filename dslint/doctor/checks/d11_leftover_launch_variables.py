"""Variables of a launcher in a shell that no launcher started.

**What.** `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`, `TORCHELASTIC_*`, `ACCELERATE_USE_*` in the
environment.

**Why it hurts.** `python train.py` believes that it is one of several ranks and waits for the others until the
time-out; without `RANK` in the environment it would have trained alone. A launcher overwrites most of them, but an old
`MASTER_ADDR` sends it to another machine.

**How it is known.** The environment, and the line of parents of this process: below torchrun, deepspeed, accelerate,
srun or mpirun, and in a Kubernetes pod, the variables are meant.

**Repair.** `unset` them.

**Evidence.** Measured: with `RANK=0 WORLD_SIZE=2` left over, `init_process_group` waits for the second rank.
"""

from __future__ import annotations

import os

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, warning
from dslint.doctor.processes import ancestors
from dslint.doctor.words import listed

META = CheckMeta("D11", "leftover-launch-variables", "Variables of a launcher in a shell that no launcher started")

_RANKS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_USE_")
_LAUNCHERS = ("torchrun", "torch.distributed", "deepspeed", "accelerate", "mpirun", "mpiexec", "orted", "prte", "srun",
              "slurmstepd", "hydra_pmi_proxy", "horovodrun", "ray")  # fmt: skip
_PLATFORMS = ("KUBERNETES_SERVICE_HOST", "SM_HOSTS", "AZUREML_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_RANK")


def check(machine: Machine) -> list[Outcome]:
    """One outcome."""
    names = [name for name in _RANKS if machine.variable(name)]
    names += sorted(name for name in machine.environ if name.startswith(_PREFIXES))
    if not names:
        return [ok("no variables of a launcher are set")]
    stated = listed([f"{name}={machine.environ[name]}" for name in names], 8)
    reason = _launched_by(machine)
    if reason:
        return [ok(stated, f"they are meant: {reason}")]
    repair = f"unset {' '.join(names)}"
    ranks = machine.variable("WORLD_SIZE")
    if machine.variable("RANK") and ranks.isdecimal() and int(ranks) > 1:
        waits = f"`python train.py` believes it is rank {machine.variable('RANK')} of {ranks} and waits for the others"
        return [error(f"left over from a launcher: {stated}", waits, repair)]
    # The two that a person sets for the next launch are set on purpose.
    if set(names) <= {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}:
        return [ok(stated, "the next launcher uses them as the meeting point")]
    return [warning(f"left over from a launcher: {stated}", "scripts take this shell for a rank of a job", repair)]


def _launched_by(machine: Machine) -> str:
    for name in _PLATFORMS:
        if machine.variable(name):
            return f"{name} is set"
    for process in ancestors(machine, os.getpid()):
        text = machine.read(process.folder / "cmdline") or process.name
        words = text.split("\0")
        # Only the program and, for an interpreter, the module or script: a path in an argument proves nothing.
        for word in words[:4]:
            base = os.path.basename(word)
            if any(base == name or word.startswith(f"{name}.") for name in _LAUNCHERS):
                return f"{process} started this shell"
    return ""
