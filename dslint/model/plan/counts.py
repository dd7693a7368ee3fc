"""How many processes a run has on how many nodes, where others decide beside the command: a hostfile, the YAML file of
accelerate launch, the script that starts them itself, the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dslint.core.fact import Fact, absent, known, product, unknown
from dslint.model.accelerate.view import TORCHRUN_TYPES
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import World, divided, flag_count
from dslint.model.launch.meeting import launcher_is_open
from dslint.model.plan.batch import run_world
from dslint.model.plan.config import ConfigChoice
from dslint.model.plan.files import Files
from dslint.model.plan.hostfile import hostfile_counts
from dslint.model.plan.spawned import spawn_world, spawned
from dslint.model.plan.stated import StatedCounts, contradictions, filled_counts
from dslint.parse.data import DataDoc

# Flags that choose how processes start before the file does, and what the file may say (accelerate 1.15
# ``commands/launch.py``: ``_validate_launch_command`` and ``launch_command``).
_CHOOSERS = {
    "--multi_gpu": "MULTI_GPU",
    "--use_deepspeed": "DEEPSPEED",
    "--use_fsdp": "FSDP",
    "--use_megatron_lm": "MEGATRON_LM",
    "--tpu": "XLA",
}
_BY_TORCHRUN = TORCHRUN_TYPES | {"DEEPSPEED"}
_ALONE = frozenset({"NO", "MULTI_CPU"})


def _run_counts(command: LaunchCommand, accelerate: DataDoc | None, hosts: World | None) -> World:
    """Nodes, processes on each and world size; ``hosts`` is what a hostfile says."""
    if hosts is not None:
        return hosts
    if command.launcher == "accelerate" and accelerate is not None and not launcher_is_open(command):
        found = _by_accelerate(command, accelerate)
        if found is not None:
            return found
    return World(command.nodes, command.processes_per_node, run_world(command, accelerate))


def _by_accelerate(command: LaunchCommand, doc: DataDoc) -> World | None:
    """What flags and file say together; ``None`` where the flags alone decide, or nobody says enough."""
    if command.launcher_flag("--cpu", "--use_cpu") is not None:
        return None
    flags = command.launcher_flags
    nodes = flag_count(flags, "--num_machines").or_else(_count(doc, "/num_machines", "nodes"))
    total = flag_count(flags, "--num_processes").or_else(_count(doc, "/num_processes", "world size"))
    kind = _kind(command, doc)
    if kind.get_or("") in _ALONE:
        by_mpi = command.launcher_flag("--mpirun_hostfile") is not None or doc.has("/mpirun_config")
        if by_mpi or nodes.get_or(1) != 1:
            why: Fact[int] = unknown("mpirun or another launcher starts the processes", *kind.origins)
            return World(nodes, why, why)
        alone = known(1, *kind.origins)
        return World(alone, alone, alone)
    if kind.is_absent or kind.get_or("") not in _BY_TORCHRUN:
        return None
    if nodes.is_absent:
        nodes = known(1)
    if total.is_absent or total.is_unknown or nodes.is_unknown:
        return World(nodes, unknown("the number of processes is not read"), total)
    if _needs_hostfile(command, doc) and nodes.get() > 1:
        why = unknown("DeepSpeed starts the processes, and no hostfile is named")
        return World(why, divided(total, nodes), why)
    per_node = divided(total, nodes)
    # What does not come out even is left out: so many on each node.
    if not per_node.is_known:
        per_node = (
            known(total.get() // nodes.get(), *total.origins, *nodes.origins)
            if total.get() >= nodes.get()
            else per_node
        )
        return World(nodes, per_node, product(nodes, per_node))
    return World(nodes, per_node, total)


def strategy_of(command: LaunchCommand, doc: DataDoc | None) -> Fact[str]:
    """How ``accelerate launch`` starts the processes: a ``distributed_type``; absent where neither flag nor file says.

    A flag wins; without both, the file in the home directory decides.
    """
    if doc is not None:
        return _kind(command, doc)
    if command.launcher_flag("--config_file") is not None:
        return absent()
    flags = ((name, command.launcher_flag(name)) for name in _CHOOSERS)
    return next((known(_CHOOSERS[name], flag.location) for name, flag in flags if flag is not None), absent())


def _kind(command: LaunchCommand, doc: DataDoc) -> Fact[str]:
    """``distributed_type`` of the file, unless a flag says otherwise."""
    for name, kind in _CHOOSERS.items():
        flag = command.launcher_flag(name)
        if flag is not None:
            return known(kind, flag.location)
    if doc.get("/compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return absent()
    fact = doc.fact("/distributed_type", "distributed_type")
    value = fact.value
    if value is False and doc.source.path.endswith((".yaml", ".yml")):
        return known("NO", *fact.origins)  # ``NO`` without quotation marks is false in YAML
    return known(value, *fact.origins) if isinstance(value, str) else absent()


def _needs_hostfile(command: LaunchCommand, doc: DataDoc) -> bool:
    """Several nodes with DeepSpeed are reached over a hostfile, unless torchrun or no ssh at all is asked for."""
    if _kind(command, doc).get_or("") != "DEEPSPEED":
        return False
    flag = command.launcher_flag("--deepspeed_multinode_launcher")
    text = flag.value.text if flag is not None and flag.value is not None else None
    by = text or doc.get("/deepspeed_config/deepspeed_multinode_launcher")
    named = command.launcher_flag("--deepspeed_hostfile") or doc.get("/deepspeed_config/deepspeed_hostfile")
    return by != "standard" and not named


def _count(doc: DataDoc, pointer: str, label: str) -> Fact[int]:
    fact: Fact[Any] = doc.fact(pointer, label)
    value = fact.value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return known(value, *fact.origins)
    return absent() if fact.is_absent else unknown("the number is not read", *fact.origins)


def resolved_counts(
    command: LaunchCommand,
    plain: str | None,
    choice: ConfigChoice,
    files: Files,
    stated: Callable[[str], StatedCounts] | None,
) -> tuple[World, tuple[str, ...]]:
    """Nodes and processes of a run, and what of the stated ones does not count because a file says otherwise.

    ``plain`` is the script when Python itself starts it, ``stated`` what the user says of the commands of a file.
    """
    found = _run_counts(command, choice.accelerate, hostfile_counts(command, files))
    spawn = (
        files.workspace.memo("spawned", plain, lambda source: spawned(source, files.workspace))
        if plain is not None
        else None
    )
    if spawn is not None:
        found = spawn_world(command, spawn)
    # Plain Python is one process, unless something shows that DeepSpeed is at work.
    is_open = stated is not None and (command.launcher != "python" or choice.doc is not None)
    numbers = stated(command.location.path) if stated is not None and is_open else StatedCounts()
    counts = filled_counts(command, found, numbers)
    return counts, tuple(contradictions(counts, numbers))
