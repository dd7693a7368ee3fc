"""Where the processes of a launch command meet, and which devices they see, for every launcher.

``rendezvous.py`` goes into the details of torchrun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import env_text, text_fact

# Tools whose processes meet where these variables say (``address``, ``port``, ``node_rank``): see ``environment.py``.
_VARIABLES = {
    "xtuner": ("ADDR", "PORT", "NODE_RANK"),
    "swift": ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    "llamafactory": ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    "composer": ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    "lightning": ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
    "srun": ("MASTER_ADDR", "MASTER_PORT", ""),
    "mpirun": ("MASTER_ADDR", "MASTER_PORT", ""),
    "python": ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"),
}
_FLAGS = {
    "deepspeed": ("--master_addr", "--master_port", "--node_rank"),
    "accelerate": ("--main_process_ip", "--main_process_port", "--machine_rank"),
    "colossalai": ("--master_addr", "--master_port", ""),
    "composer": ("--master_addr", "--master_port", "--node_rank"),
}
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where processes meet, as far as the command states it; what it leaves to a default is absent.

    ``backend``: ``static``, ``c10d``, ``etcd`` ... of torchrun (``static`` is its default), absent for others.
    ``address`` is a host name or IP, ``port`` the number as text: it need not be a port that exists. ``node_rank`` is
    the number of this node. ``is_standalone``: torchrun's ``--standalone``, which ignores all others.

    Defaults: torchrun meets at 127.0.0.1:29500; from torch 2.12 on, on a single node without ``--master_port``, at a
    free port; with ``--standalone`` at a free port from 2.1 on, at 29400 before (``torch/distributed/run.py`` of each
    release). deepspeed and accelerate launch: 29500. XTuner: a random port on each node. LLaMA-Factory: a free one.
    """

    backend: Fact[str] = field(default_factory=absent)
    address: Fact[str] = field(default_factory=absent)
    port: Fact[str] = field(default_factory=absent)
    node_rank: Fact[str] = field(default_factory=absent)
    is_standalone: bool = False


def meeting(command: LaunchCommand) -> Meeting:
    """What flags and variables of a command say about its rendezvous; unknown where unreadable words may say more."""
    if command.launcher == "torchrun":
        return _torchrun(command)
    names = _FLAGS.get(command.launcher, ("", "", ""))
    variables = _VARIABLES.get(command.launcher, ("", "", ""))
    address, port, node_rank = (
        _flag(command, flag).or_else(env_text(command.env, variable) if variable else absent())
        for flag, variable in zip(names, variables, strict=True)
    )
    return Meeting(absent(), address, port, node_rank)


def is_at_loopback(command: LaunchCommand) -> bool:
    """The command certainly meets others of its run on this machine."""
    return _LOOPBACK.fullmatch(meeting(command).address.get_or("")) is not None


def _torchrun(command: LaunchCommand) -> Meeting:
    standalone = torchrun_option(command, "--standalone")
    if is_switched_on(standalone):
        return Meeting(known("c10d", *standalone.origins), is_standalone=True)
    backend = torchrun_option(command, "--rdzv_backend")
    node_rank = torchrun_option(command, "--node_rank")
    endpoint = torchrun_option(command, "--rdzv_endpoint")
    if endpoint.is_absent:
        return Meeting(
            backend, torchrun_option(command, "--master_addr"), torchrun_option(command, "--master_port"), node_rank
        )
    if endpoint.is_known:
        host, colon, port = endpoint.get().rpartition(":")
        address = known(host.strip("[]") if colon else port, *endpoint.origins)
        return Meeting(backend, address, known(port, *endpoint.origins) if colon else absent(), node_rank)
    flag = command.launcher_flag("--rdzv_endpoint")
    tail = flag.value.tail if flag is not None and flag.value is not None else ""
    port_of_tail = known(tail, *endpoint.origins) if tail else unknown(endpoint.reason, *endpoint.origins)
    return Meeting(backend, unknown(endpoint.reason, *endpoint.origins), port_of_tail, node_rank)


def torchrun_option(command: LaunchCommand, name: str) -> Fact[str]:
    """An option of torchrun, else its variable ``PET_NAME``."""
    flag = _flag(command, name)
    variable = f"PET_{name[2:].upper()}"
    # A switch has no value; nobody sets ``PET_`` variables in an image without a word about it.
    return flag.or_else(env_text(command.env, variable) if variable in command.env else absent())


def is_switched_on(fact: Fact[str]) -> bool:
    """A switch is given, or its variable is set to anything but nothing and 0."""
    return fact.is_known and fact.get() not in ("", "0")


def _flag(command: LaunchCommand, name: str) -> Fact[str]:
    if not name:
        return absent()
    flag = command.launcher_flag(name)
    if flag is not None and flag.value is None:
        return known("1", flag.location.labelled(flag.name))
    fact = text_fact(flag)
    if fact.is_absent and launcher_is_open(command):
        return unknown("some words of the launcher are not known")
    return fact


def launcher_is_open(command: LaunchCommand) -> bool:
    """A word before the script cannot be read and may hold options of the launcher."""
    end = command.script.location.span.start if command.script is not None else command.location.span.end
    return any(word.spreads and word.location.span.start < end for word in command.words)


def devices(command: LaunchCommand) -> Fact[tuple[str, ...]]:
    """The devices of one node that the processes of a command share, as ids or UUIDs; absent when nobody states them.

    deepspeed: the slots of ``--include`` on one host, else the first ``--num_gpus``, else ``CUDA_VISIBLE_DEVICES``,
    which it deletes beside either (0.19.8 ``launcher/runner.py``); accelerate launch: ``--gpu_ids`` before
    ``CUDA_VISIBLE_DEVICES`` (1.15 ``utils/launch.py``). With several hosts each has its own.
    """
    shown = env_text(command.env, "CUDA_VISIBLE_DEVICES")
    if command.launcher in ("deepspeed", "accelerate") and launcher_is_open(command):
        return unknown("some words of the launcher are not known")
    if command.launcher == "deepspeed":
        return _of_deepspeed(command, shown)
    if command.launcher == "accelerate":
        ids = _flag(command, "--gpu_ids")
        if not ids.is_absent and ids.get_or("") != "all":
            return _listed(ids)
    if command.launcher == "lightning":
        flag = command.script_flag("--trainer.devices")
        if flag is not None and flag.value is not None and (flag.value.text or "").strip().startswith("["):
            return _listed(text_fact(flag))
    return _listed(shown)


def _of_deepspeed(command: LaunchCommand, shown: Fact[str]) -> Fact[tuple[str, ...]]:
    include, hosts = text_fact(command.launcher_flag("-i", "--include")), command.launcher_flag("-H", "--hostfile")
    if command.launcher_flag("-e", "--exclude") is not None:
        return unknown("`--exclude` depends on the machine")
    if include.is_known and include.get():
        host, _, slots = include.get().partition(":")
        if "@" in include.get() or not slots or not host:
            return unknown("`--include` depends on the hosts", *include.origins)
        ids = sorted(set(slots.split(",")), key=lambda slot: (len(slot), slot))
        return known(tuple(ids), *include.origins)
    if include.is_unknown:
        return unknown(include.reason, *include.origins)
    count = command.launcher_flag("--num_gpus", "--num_accelerators")
    if count is not None and count.value is not None and re.fullmatch(r"[1-9]\d{0,3}", count.value.text or ""):
        return known(tuple(map(str, range(int(count.value.text or 0)))), count.location, *count.value.origins)
    if count is not None or hosts is not None:
        return unknown("the number of devices is not known")
    return absent() if shown.get_or(" ") == "" else _listed(shown)


def _listed(fact: Fact[str]) -> Fact[tuple[str, ...]]:
    if not fact.is_known:
        return absent() if fact.is_absent else unknown(fact.reason, *fact.origins)
    text = fact.get().strip("[] ")
    return known(tuple(part.strip() for part in text.split(",") if part.strip()), *fact.origins)
