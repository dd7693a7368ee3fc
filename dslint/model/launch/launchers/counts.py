"""How many processes a command starts, by launcher: nodes, processes per node and their product with origins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dslint.core.fact import Fact, absent, known, product, unknown
from dslint.core.source import Location
from dslint.model.launch.launchers.base import (
    Parsed,
    World,
    closed,
    divided,
    env_count,
    env_text,
    flag_count,
    last,
    one,
    text_fact,
    world,
)

# The GPUs of the machine on which a command starts, among the facts beside its environment.
MACHINE_GPUS = "MACHINE_GPUS"
# The machines on which the file starts the same command, and the processes that MPI finds room for on them.
MACHINE_NODES, MACHINE_SLOTS = "MACHINE_NODES", "MACHINE_SLOTS"
# Of a job of MPI: the slots and the GPUs of one worker.
WORKER_SLOTS, WORKER_GPUS = "MACHINE_WORKER_SLOTS", "MACHINE_WORKER_GPUS"
Counter = Callable[[Parsed, Mapping[str, Fact[str]], Location], World]


def torchrun(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``--nnodes`` x ``--nproc_per_node``; both are 1 by default, and ``gpu`` is one for each visible device.

    An option that is missing is looked up as ``PET_NNODES`` or the like (torch 1.9 to 2.13
    ``torch/distributed/argparse_util.py``).
    """
    nodes = flag_count(parsed.flags, "--nnodes").or_else(_pet(env, "PET_NNODES"))
    per_node = flag_count(parsed.flags, "--nproc_per_node").or_else(_pet(env, "PET_NPROC_PER_NODE"))
    flag = last(parsed.flags, "--nproc_per_node")
    if flag is not None and flag.value is not None and flag.value.text == "gpu":
        per_node = devices(env)
    nodes, per_node = closed(nodes, parsed.open), closed(per_node, parsed.open)
    return world(
        nodes.or_else(one(place, "one node, the default of torchrun")),
        per_node.or_else(one(place, "one process a node, the default of torchrun")),
    )


def _pet(env: Mapping[str, Fact[str]], name: str) -> Fact[int]:
    """torchrun's own variables: nobody sets them in an image or a sourced file without a word about it."""
    return env_count(env, name) if name in env else absent()


def deepspeed(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``--include``, else ``--num_nodes`` x ``--num_gpus``, else the visible devices of one node."""
    include, exclude = text_fact(last(parsed.flags, "-i", "--include")), last(parsed.flags, "-e", "--exclude")
    gpus = closed(flag_count(parsed.flags, "--num_gpus", "--num_accelerators"), parsed.open)
    nodes = flag_count(parsed.flags, "--num_nodes")
    hosts = last(parsed.flags, "-H", "--hostfile")
    if exclude is not None:
        return world(unknown("`--exclude` depends on the hosts"), unknown("`--exclude` depends on the hosts"))
    if not include.is_absent:
        return _included(include)
    if nodes.is_absent and not parsed.open:
        nodes = unknown("the hostfile decides") if hosts else one(place, "one node without a hostfile")
    if gpus.is_absent:
        alone = nodes.is_known and nodes.get() == 1 and hosts is None
        gpus = devices(env) if alone else unknown("all accelerators of every node")
    return world(closed(nodes, True), gpus)


def _included(include: Fact[str]) -> World:
    """``localhost:0,1`` or ``worker-0:0,1@worker-1:0,1``."""
    if not include.is_known:
        return world(unknown(include.reason), unknown(include.reason))
    hosts = [h.partition(":") for h in include.get().split("@") if h]
    if not all(re.fullmatch(r"(?:\d+(?:,\d+)*)?", s) for _, _, s in hosts):
        return world(unknown("DeepSpeed does not read this filter"), unknown("DeepSpeed does not read this filter"))
    if len({host for host, _, _ in hosts}) != len(hosts):
        # Since 0.15.2 the slots of a host that is named twice add up; before, the last ones count.
        return world(unknown("a host is named twice", *include.origins), unknown("a host is named twice"))
    slots = [len(set(s.split(","))) if s else 0 for _, _, s in hosts]
    nodes: Fact[int] = known(len(hosts), *include.origins)
    if not slots or 0 in slots:
        return world(nodes, unknown("all accelerators of a host", *include.origins))
    per_node: Fact[int] = unknown("the hosts differ", *include.origins)
    if len(set(slots)) == 1:
        per_node = known(slots[0], *include.origins)
    return World(nodes, per_node, known(sum(slots), *include.origins))


def devices(env: Mapping[str, Fact[str]]) -> Fact[int]:
    """How many devices ``CUDA_VISIBLE_DEVICES`` shows; without it all of the machine, where that is this one."""
    shown = env_text(env, "CUDA_VISIBLE_DEVICES")
    if shown.is_absent and MACHINE_GPUS in env:
        return env_count(env, MACHINE_GPUS)
    if not shown.is_known:
        return unknown(shown.reason or "all accelerators of the machine")
    ids = [i.strip() for i in shown.get().split(",")]
    if not all(i.isdigit() for i in ids) or len(set(ids)) != len(ids):
        return unknown("`CUDA_VISIBLE_DEVICES` is not a list of numbers", *shown.origins)
    return known(len(ids), *shown.origins)


def accelerate(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``--num_processes`` is the total over all machines, of which each starts the same share.

    Where nothing speaks of others it is one machine. ``--cpu`` starts one process, whatever else is said, unless mpirun
    does (accelerate 0.20 to 1.15 ``commands/launch.py``: ``simple_launcher``).
    """
    del env
    nodes = closed(flag_count(parsed.flags, "--num_machines"), parsed.open)
    total = closed(flag_count(parsed.flags, "--num_processes"), parsed.open)
    if last(parsed.flags, "--cpu", "--use_cpu") is not None and not parsed.open:
        if last(parsed.flags, "--mpirun_hostfile") is not None or nodes.get_or(1) != 1:
            why: Fact[int] = unknown("mpirun or another launcher starts the processes")
            return World(why, why, total)
        alone = one(place, "one process with `--cpu`")
        return World(alone, alone, alone)
    if total.is_absent:
        total = unknown("the accelerate config decides")
    elif nodes.is_absent and last(parsed.flags, *ELSEWHERE) is None:
        nodes = one(place, "one machine, unless a config in the home directory says otherwise")
    return World(nodes, divided(total, nodes), total)


# They name a file that may say how many machines there are, or speak of one among several.
ELSEWHERE = ("--config_file", "--machine_rank", "--main_process_ip", "--deepspeed_hostfile", "--mpirun_hostfile")


def slurm_tasks(parsed: Parsed, env: Mapping[str, Fact[str]]) -> World:
    """Tasks of ``srun``: its own options, else the ``#SBATCH`` directives of the file.

    On one part of a heterogeneous job (``--het-group``) the directives of another may count.
    """
    is_part = last(parsed.flags, "--het_group", "--pack_group") is not None
    env = {} if is_part else env
    nodes = flag_count(parsed.flags, "-N", "--nodes").or_else(env_count(env, "SBATCH_NODES"))
    own_total = flag_count(parsed.flags, "-n", "--ntasks")
    per_node = flag_count(parsed.flags, "--ntasks_per_node", "--tasks_per_node")
    if own_total.is_absent:
        per_node = per_node.or_else(env_count(env, "SBATCH_NTASKS_PER_NODE"))
    total = own_total.or_else(env_count(env, "SBATCH_NTASKS")) if per_node.is_absent else own_total
    if is_part or parsed.open or last(parsed.flags, "--ntasks_per_gpu", "--ntasks_per_core") is not None:
        nodes, per_node, total = closed(nodes, True), closed(per_node, True), closed(total, True)
    if total.is_absent:
        # One task a node unless somebody says otherwise.
        total = nodes if per_node.is_absent else product(nodes, per_node)
    return World(nodes, divided(total, nodes) if per_node.is_absent else per_node, total)


def srun(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``srun python``: one process a task."""
    del place
    return slurm_tasks(parsed, env)


def mpirun(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``-np`` is the total, else the slots of ``-H host:slots,...`` of Open MPI.

    Per node: ``-npernode``, ``-N`` and ``--map-by ppr:N:node`` of Open MPI, ``-ppn`` of MPICH and Intel MPI.
    """
    del env, place
    total = closed(flag_count(parsed.flags, "-np", "-n", "-c", "--n", "--np"), parsed.open)
    per_node = flag_count(parsed.flags, "-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost", "--perhost")
    mapped = text_fact(last(parsed.flags, "--map_by", "-map_by"))
    if per_node.is_absent and (found := re.match(r"ppr:([1-9]\d*):node\b", mapped.get_or(""))):
        per_node = known(int(found[1]), *mapped.origins)
    hosts = text_fact(last(parsed.flags, "-H", "-host", "--host", "-hosts", "--hosts"))
    counted = slots(hosts.get()) if hosts.is_known and ":" in hosts.get() else ()
    if total.is_absent and counted:
        total = known(sum(counted), *hosts.origins)
    if per_node.is_absent and len(set(counted)) == 1 and total.get_or(0) == sum(counted):
        per_node = known(counted[0], *hosts.origins)
    nodes = divided(total, per_node) if total.is_known and per_node.is_known else unknown("the host list decides")
    return World(nodes, per_node, total)


def slots(hosts: str) -> tuple[int, ...]:
    """``a:4,b:4`` -> ``(4, 4)``; one slot for a host without a number, empty when it cannot be read."""
    found = [re.fullmatch(r"[\w.-]+(?::(\d{1,4}))?", host.strip()) for host in hosts.split(",")]
    return tuple(int(match[1] or 1) for match in found if match) if all(found) else ()


def by_environment(nodes: str, per_node: str) -> Counter:
    """Tools that start torchrun with counts from the environment (XTuner)."""

    def counter(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
        del parsed
        machines, processes = env_count(env, nodes), env_count(env, per_node)
        if machines.is_absent and not processes.is_absent:
            machines = one(place, f"one node without `{nodes}`")
        return world(machines, processes)

    return counter


def xtuner(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """``xtuner train`` starts torchrun with ``NNODES`` and ``NPROC_PER_NODE`` (XTuner ``entry_point.cli``)."""
    spread = by_environment("NNODES", "NPROC_PER_NODE")(parsed, env, place)
    if spread.per_node.is_absent and spread.nodes.is_known:
        return world(spread.nodes, one(place, "one process a node without `NPROC_PER_NODE`"))
    return spread


def undecided(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """The tool reads a config file that is not looked into."""
    del parsed, env, place
    return World(unknown("a config file decides"), unknown("a config file decides"), unknown("a config file decides"))
