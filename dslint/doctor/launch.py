"""What the environment says about the job that is to be started."""

from __future__ import annotations

from dslint.doctor.machine import Machine


def several_machines(machine: Machine) -> bool:
    """Whether a job of this shell means several machines: hosts are named, or the variables of a launch say so."""
    nodes = machine.variable("SLURM_JOB_NUM_NODES") or machine.variable("SLURM_NNODES")
    master = machine.variable("MASTER_ADDR")
    own = {"", "localhost", machine.hostname()}
    return bool(
        machine.hosts or machine.hostfile or (nodes.isdecimal() and int(nodes) > 1)
        or (master not in own and not master.startswith("127."))
    )  # fmt: skip
