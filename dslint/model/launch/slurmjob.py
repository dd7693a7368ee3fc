"""What Slurm gives a command under ``srun``: tasks and GPUs of a node, from its options and the ``#SBATCH`` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dslint.core.fact import Fact, absent, known, product, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.launchers.base import Parsed, World, env_count
from dslint.model.launch.launchers.counts import MACHINE_GPUS, slurm_tasks

# They start the processes of a node themselves: one of them on each node is enough.
PER_NODE = ("torchrun", "deepspeed", "accelerate")
# What PBS and LSF give a node.
_OTHER_QUEUES = ("PBSJOB_GPUS_PER_NODE", "BSUB_GPUS_PER_HOST")


def step_tasks(command: LaunchCommand) -> World:
    """The tasks that ``srun`` starts for a command, by node and in all."""
    return slurm_tasks(Parsed(_srun_flags(command), ()), command.env)


def _srun_flags(command: LaunchCommand) -> tuple[Flag, ...]:
    if command.outer == "srun":
        return command.outer_flags
    return command.launcher_flags if command.launcher == "srun" else ()


def job_nodes(command: LaunchCommand) -> Fact[int]:
    """The nodes that the batch job asks for."""
    return env_count(command.env, "SBATCH_NODES")


def job_tasks(command: LaunchCommand) -> Fact[int]:
    """The tasks that the batch job asks for; absent where it says none, and one is the default."""
    if "SBATCH_NTASKS" in command.env:
        return env_count(command.env, "SBATCH_NTASKS")
    if "SBATCH_NTASKS_PER_NODE" not in command.env:
        return absent()
    return product(job_nodes(command).or_else(known(1)), env_count(command.env, "SBATCH_NTASKS_PER_NODE"))


def srun_says_tasks(command: LaunchCommand) -> bool:
    """Options of ``srun`` itself say how many tasks there are."""
    names = {"-n", "--ntasks", "--ntasks_per_node", "--tasks_per_node", "--ntasks_per_gpu"}
    return any(flag.name in names for flag in _srun_flags(command))


def on_a_part(command: LaunchCommand) -> bool:
    """The step runs on one part of a heterogeneous job, or beside other programs: the directives may be of others."""
    return any(flag.name in ("--het_group", "--pack_group") for flag in _srun_flags(command))


def gpus_per_node(command: LaunchCommand) -> Fact[int]:
    """The GPUs that the step, else the job, has on each node: ``--gpus-per-node``, ``--gres=gpu:8``, or a task's."""
    step: Fact[int] = absent()
    for flag in _srun_flags(command):
        if flag.name in ("--gpus_per_node", "--gres"):
            step = _count(flag)
        elif flag.name in ("--gpus", "-G", "--gpus_per_socket"):
            return unknown("a number for the whole step", flag.location)
        elif flag.name == "--gpus_per_task":
            tasks = step_tasks(command).per_node
            own = _count(flag)
            alone = own.is_known and tasks.get_or(0) == 1
            step = own if alone else unknown("the GPUs of each task", flag.location)
    if not step.is_absent or on_a_part(command):
        return step
    job = env_count(command.env, "SBATCH_GPUS_PER_NODE") if "SBATCH_GPUS_PER_NODE" in command.env else absent()
    if not job.is_absent:
        return job
    if "SBATCH_GPUS_PER_TASK" in command.env and step_tasks(command).per_node.get_or(0) == 1:
        return env_count(command.env, "SBATCH_GPUS_PER_TASK")
    if "SBATCH_GPUS" in command.env and job_nodes(command).get_or(0) == 1:  # how several nodes share them is open
        return env_count(command.env, "SBATCH_GPUS")
    return absent()


def machine_gpus(command: LaunchCommand) -> Fact[int]:
    """The GPUs of a node by whatever gives them: Slurm, PBS, LSF, a pod, a container, the machine itself."""
    found = gpus_per_node(command)
    for name in (*_OTHER_QUEUES, MACHINE_GPUS):
        if found.is_absent and name in command.env:
            found = env_count(command.env, name)
    return found


_QUEUES = ("SBATCH_", "PBSJOB_", "BSUB_")
_ONE_TASK = re.compile(r"(\d+)(?:-\1)?(?::\d+)?")


def of_queue(facts: Mapping[str, Fact[str]], name: str) -> Fact[str]:
    """What a job says to whichever queue it is for: ``ARRAY``, ``ALONE``, ``DEPENDENCY``, ``NODELIST``."""
    return next((facts[queue + name] for queue in _QUEUES if queue + name in facts), absent())


def tasks_at_once(facts: Mapping[str, Fact[str]]) -> Location | None:
    """Where a job is asked to be an array, several tasks of which run beside each other on nodes that they share."""
    array = of_queue(facts, "ARRAY")
    tasks, _, most = array.get_or("").replace("]", "").partition("%")
    is_several = re.fullmatch(r"[\d,:-]+", tasks) is not None and _ONE_TASK.fullmatch(tasks) is None and most != "1"
    return array.origins[0] if is_several and array.origins and not is_alone(facts) else None


def is_alone(facts: Mapping[str, Fact[str]]) -> bool:
    """A job has its nodes for itself, or waits until no other one of its name runs."""
    return not of_queue(facts, "ALONE").is_absent or of_queue(facts, "DEPENDENCY").get_or("") == "singleton"


def _count(flag: Flag) -> Fact[int]:
    text = _text_of(flag)
    match = re.fullmatch(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d{1,4})", text)
    if match is None:
        return unknown("not one number", flag.location)
    origins = flag.value.origins if flag.value is not None else ()
    return known(int(match[1]), flag.location.labelled(f"{flag.name} {text}"), *origins)


def one_gpu_of_task(command: LaunchCommand) -> Location | None:
    """Where Slurm is asked to show each task that ``srun`` starts one GPU."""
    if command.launcher != "srun":
        return None
    flags = {flag.name: flag for flag in (*command.outer_flags, *command.launcher_flags)}
    bind = flags.get("--gpu_bind")
    if bind is not None:
        return bind.location if _text_of(bind).startswith(("single:1", "per_task:1")) else None
    own = flags.get("--gpus_per_task")
    if own is not None:
        return own.location if _text_of(own) == "1" else None
    job = command.env.get("SBATCH_GPUS_PER_TASK")
    return job.origins[0] if job is not None and job.get_or("") == "1" and job.origins else None


def _text_of(flag: Flag) -> str:
    return (flag.value.text or "") if flag.value is not None else ""
