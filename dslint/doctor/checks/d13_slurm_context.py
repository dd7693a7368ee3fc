"""The Slurm job in which this shell runs.

**What.** Inside an allocation: a shell that is itself a step (`srun --pty bash`), and tasks per node against GPUs per
node.

**Why it hurts.** A further `srun` inside such a shell waits for resources that the shell itself holds, for ever, unless
it says `--overlap`. With several tasks on a node, `srun torchrun ...` starts that many launchers there, which fight for
one port.

**How it is known.** `SLURM_*` variables.

**Repair.** `srun --overlap`, or `--ntasks-per-node=1` for a launcher that starts its own ranks.

**Evidence.** https://slurm.schedmd.com/srun.html (`--overlap`), https://github.com/pytorch/pytorch/issues/73656.
"""

from __future__ import annotations

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, ok, warning

# slurm.h: the batch step, and the interactive step of salloc, which hands its resources on, are numbered from here.
_SPECIAL_STEPS = 0xFFFFFFF0

META = CheckMeta("D13", "slurm-context", "The Slurm job in which this shell runs")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each trap, one in all when there is none."""
    job = machine.variable("SLURM_JOB_ID")
    if not job:
        return [ok("not inside a Slurm job")]
    outcomes = []
    step = machine.variable("SLURM_STEP_ID")
    # srun --pty sets the port; batch scripts and plain steps do not have it.
    if machine.variable("SLURM_PTY_PORT") and step.isdecimal() and int(step) < _SPECIAL_STEPS:
        reason = "it holds the resources of the job: a further srun here waits for them forever"
        outcomes.append(warning(f"this shell is a step of Slurm job {job}", reason, "srun --overlap ..."))
    tasks = machine.variable("SLURM_NTASKS_PER_NODE")
    nodes = machine.variable("SLURM_JOB_NUM_NODES") or "?"
    gpus = machine.variable("SLURM_GPUS_ON_NODE")
    facts = f"Slurm job {job}: {nodes} nodes, {tasks or '?'} tasks and {gpus or '?'} GPUs on each"
    if tasks.isdecimal() and gpus.isdecimal() and 1 < int(tasks) != int(gpus) > 0:
        reason = "neither one task for each GPU (a rank each) nor one for each node (a launcher each)"
        outcomes.append(warning(facts, reason, f"#SBATCH --ntasks-per-node={gpus}  # with torchrun: 1"))
    return outcomes or [ok(facts)]
