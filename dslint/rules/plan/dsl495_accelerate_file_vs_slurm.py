"""**What.** The YAML file of `accelerate launch` has other numbers than the Slurm job that starts it: another
`num_machines` than the step has nodes, or another number of processes on a machine than the job, pod, container or
task has GPUs there. The command may be in a script that the job calls.

**Why it hurts.** With fewer machines than the step has, each trains alone: as many separate runs as nodes, which
overwrite each other's files. With more machines than there are, every agent waits in the rendezvous until it times
out. With more processes than GPUs the last ones stop with `invalid device ordinal`; with fewer, GPUs stay idle for
the whole run.

**Fix.** Pass the numbers of the job: `--num_machines $SLURM_NNODES --num_processes $((SLURM_NNODES * 8))`.

**When it stays quiet.** When the command passes the number itself (DSL320, DSL367), when a number is not known, when
`CUDA_VISIBLE_DEVICES` divides the GPUs, for a single process, and where DeepSpeed reaches the machines over a
hostfile.

**Evidence.** Slurm's manual (`--gres`, `--gpus-per-node`, `--nodes`) and `accelerate/commands/launch.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import VISIBLE
from dslint.model.launch.slurmjob import machine_gpus, step_tasks
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL495",
    name="accelerate-file-vs-slurm",
    kind="plan",
    severity=Severity.WARNING,
    summary="The YAML file of `accelerate launch` has other numbers of nodes or GPUs than the Slurm job",
    references=("https://slurm.schedmd.com/sbatch.html#OPT_gpus-per-node",),
    depends_on_run=True,
    needs=("accelerate",),
    no_experiment="what a job sees of a node is up to Slurm, and the source is its manual",
)

_HEAD = "#!/bin/bash\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n"
_RUN = "accelerate launch --config_file acc.yaml train.py\n"
_FILE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmain_process_ip: 10.0.0.1\n"
    "main_process_port: 29500\nmachine_rank: 0\nnum_machines: {}\nnum_processes: {}\nrdzv_backend: c10d\n"
)


def _job(nodes: int, gpus: int, machines: int, processes: int, start: str = "srun " + _RUN) -> dict[str, str]:
    return {
        "job.sbatch": _HEAD.format(nodes, gpus) + start,
        "acc.yaml": _FILE.format(machines, processes),
        "run.sh": _RUN,
        "train.py": "print()\n",
    }


EXAMPLES = (
    bad("eight processes for four GPUs", _job(1, 4, 1, 8), "acc.yaml:7 warning"),
    bad("four machines in a job of two", _job(2, 8, 4, 32), "acc.yaml:6 error"),
    bad("the command is in another file", _job(2, 8, 4, 32, "srun bash run.sh\n"), "acc.yaml:6 error"),
    bad("half of the GPUs", _job(2, 8, 2, 8), "acc.yaml:7 warning"),
    bad("one process of a type for several", _job(1, 4, 1, 1), "acc.yaml:7 warning"),
    bad("SkyPilot", {
        "task.yaml": "resources:\n  accelerators: A100:4\nrun: |\n  " + _RUN,
        **{name: text for name, text in _job(1, 4, 1, 8).items() if name != "job.sbatch"},
    }, "acc.yaml:7 warning"),
    bad("each machine alone", _job(2, 8, 1, 8), "acc.yaml:6 warning"),
    bad("a command in variables", _job(
        2, 8, 1, 8,
        'L="accelerate launch --config_file acc.yaml --machine_rank \\$SLURM_PROCID --main_process_ip $HEAD"\n'
        'srun bash -c "$L train.py"\n',
    ), "acc.yaml:6 warning"),
    good("one node of the job", _job(2, 8, 1, 8, "srun -N 1 -n 1 " + _RUN)),
    good("the same numbers", _job(2, 8, 2, 16)),
    good("the command says them", _job(2, 4, 4, 32, "srun " + _RUN.replace(
        "--config_file", "--num_machines $SLURM_NNODES --num_processes 8 --config_file"
    ))),
    good("GPUs of its own", _job(1, 4, 1, 8, "export CUDA_VISIBLE_DEVICES=$GPUS\nsrun " + _RUN)),
)  # fmt: skip

_CHOOSES = frozenset({"-w", "--nodelist", "-r", "--relative", "-F", "--nodefile", "-x", "--exclude", "--het_group"})


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Compare the file with the job around its command."""
    doc, command = plan.accelerate, plan.command
    if doc is None or command.launcher != "accelerate" or command.hides_options or command.conditions:
        return
    nodes = step_tasks(command).nodes
    has_own = command.launcher_flag("--num_machines") is not None or doc.has("/deepspeed_config/deepspeed_hostfile")
    machines = plan.nodes.get_or(0)
    if command.outer == "srun" and nodes.is_known and not has_own and machines > nodes.get():
        yield _finding(
            plan, "num_machines",
            f"`num_machines: {machines}` in a Slurm step of {nodes.get()} nodes: the rendezvous never completes",
            nodes, Severity.ERROR,
        )  # fmt: skip
        return
    if command.outer == "srun" and not has_own and _is_one_each(command) and 0 < machines < nodes.get_or(0):
        alone = "each of them trains alone" if machines == 1 else "the rest is left over"
        yield _finding(
            plan, "num_machines", f"`num_machines: {machines}` in a Slurm step of {nodes.get()} nodes: {alone}",
            nodes, Severity.WARNING,
        )  # fmt: skip
        return
    gpus, count = machine_gpus(command), plan.processes_per_node.get_or(0)
    by_file = command.launcher_flag("--num_processes", "--gpu_ids", "--cpu", "--use_cpu") is None
    if not by_file or not gpus.get_or(0) or count in (0, gpus.get()) or VISIBLE in command.env:
        return
    if count == 1 and doc.get("/distributed_type") not in ("MULTI_GPU", "FSDP"):  # one process may spread its model
        return
    more = "the last ones have no device" if count > gpus.get() else f"{gpus.get() - count} of them stay idle"
    message = f"{counted(count, 'process')} on a machine for {gpus.get()} GPUs of its job: {more}"
    yield _finding(plan, "num_processes", message, gpus, Severity.WARNING)


def _is_one_each(command: LaunchCommand) -> bool:
    """The step has one task on each of its nodes, and nothing chooses among them."""
    tasks = step_tasks(command)
    return tasks.per_node.get_or(0) == 1 and not any(flag.name in _CHOOSES for flag in command.outer_flags)


def _finding(plan: RunPlan, key: str, message: str, job: Fact[int], severity: Severity) -> Finding:
    assert plan.accelerate is not None
    return META.finding(
        plan.accelerate.value(f"/{key}"),
        message,
        hint=f"Pass `--{key}` with the command, from the variables of Slurm",
        related=(*job.origins[:1], plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else severity,
        pointer=f"/{key}",
    )
