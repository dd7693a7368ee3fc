"""How many processes the tools start that run a launcher themselves, or take a launcher's place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Flag, Word
from dslint.model.launch.launchers import counts, tables
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
    parse_options,
    script_flags,
    text_fact,
    world,
)

_ON = ("true", "1")


def swift(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """ms-swift 4.0 ``swift/cli/main.py``: torchrun when ``NPROC_PER_NODE`` or ``NNODES`` is set, else plain Python.

    ``ENV`` of its YAML file may set both; the file is not looked into.
    """
    if parsed.rest and (parsed.rest[0].text or "").endswith((".yaml", ".yml", ".json")):
        return world(
            env_count(env, "NNODES").or_else(unknown("the config file may set `NNODES`")),
            env_count(env, "NPROC_PER_NODE").or_else(unknown("the config file may set `NPROC_PER_NODE`")),
        )
    nodes, per_node = env_count(env, "NNODES"), env_count(env, "NPROC_PER_NODE")
    if nodes.is_absent and per_node.is_absent:
        return World()
    return world(
        nodes.or_else(one(place, "one node without `NNODES`")),
        per_node.or_else(one(place, "one process a node without `NPROC_PER_NODE`")),
    )


def llamafactory(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """LLaMA-Factory ``launcher.py``: torchrun with ``FORCE_TORCHRUN`` or more than one device, else plain Python.

    One process a device unless ``NPROC_PER_NODE`` says otherwise; without torchrun ``NNODES`` is not read.
    """
    del parsed
    nodes, per_node = env_count(env, "NNODES"), env_count(env, "NPROC_PER_NODE")
    devices = counts.devices(env)
    forced = env_text(env, "FORCE_TORCHRUN")
    if any(name in env for name in ("USE_RAY", "USE_KT", "USE_MCA", "USE_MEGATRON_BRIDGE", "RDZV_ID")):
        return World(nodes, per_node, unknown("the tool starts the processes in another way"))
    is_forced = forced.get_or("").lower() in _ON
    if not is_forced and not forced.is_unknown and devices.get_or(0) == 1:
        alone = known(1, *devices.origins)
        return World(alone, alone, alone)
    if per_node.is_absent and (is_forced or devices.is_known):
        per_node = devices
    if nodes.is_absent and not per_node.is_absent:
        nodes = one(place, "one node without `NNODES`")
    return world(nodes, per_node)


def axolotl(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """axolotl 0.12 and later, ``cli/utils/train.py``: ``--launcher`` (accelerate), whose arguments stand behind ``--``.

    ``--num-processes`` is handed on to accelerate. Older releases know accelerate alone.
    """
    texts = [word.text for word in parsed.rest]
    at = texts.index("--") if "--" in texts else len(texts)
    flags = script_flags(parsed.rest[:at])
    launcher = text_fact(last(flags, "--launcher"))
    if launcher.is_unknown or parsed.open or any(word.spreads for word in parsed.rest) or last(flags, "--cloud"):
        return counts.undecided(parsed, env, place)
    name = launcher.get_or("accelerate")
    if name == "torchrun":
        return counts.torchrun(parse_options(parsed.rest[at + 1 :], tables.released("torchrun")), env, place)
    if name != "accelerate" or last(flags, "--no_accelerate", "--use_ray"):
        return World()
    inner = parse_options(parsed.rest[at + 1 :], tables.released("accelerate"))
    own = last(flags, "--num_processes")
    found = counts.accelerate(Parsed((*((own,) if own else ()), *inner.flags), (), inner.open), env, place)
    return found if found.total.is_known else counts.undecided(parsed, env, place)


def trl(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """trl 0.12 and later, ``cli``: ``accelerate launch`` with its options among those of the script."""
    flags = script_flags(parsed.rest)
    is_open = parsed.open or any(word.spreads for word in parsed.rest)
    if last(flags, "--config", "--accelerate_config") is not None and last(flags, "--num_processes") is None:
        return counts.undecided(parsed, env, place)
    return counts.accelerate(Parsed(flags, (), is_open), env, place)


def split_launcher(words: Sequence[Word]) -> tuple[tuple[Word, ...], tuple[Flag, ...]]:
    """The words of ``axolotl train`` before ``--``, and the options of the launcher behind it."""
    at = next(i for i, word in enumerate(words) if word.text == "--")
    name = text_fact(last(script_flags(words[:at]), "--launcher")).get_or("accelerate")
    table = tables.released(name if name in ("torchrun", "accelerate") else "torchrun")
    return tuple(words[:at]), parse_options(words[at + 1 :], table).flags


def colossalai(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """ColossalAI ``cli/launcher/run.py``: torchrun on each host of ``--host``, or of a hostfile, else on this one."""
    del env
    per_node = closed(flag_count(parsed.flags, "--nproc_per_node"), parsed.open)
    hosts = text_fact(last(parsed.flags, "--host", "-host", "-H"))
    if last(parsed.flags, "--hostfile") is not None:
        nodes: Fact[int] = unknown("the hostfile decides")
    elif hosts.is_absent:
        nodes = unknown("some words are not known") if parsed.open else one(place, "one node without `--host`")
    elif hosts.is_known:
        nodes = known(len(hosts.get().strip().split(",")), *hosts.origins)
    else:
        nodes = unknown(hosts.reason)
    return world(nodes, per_node)


def composer(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """MosaicML Composer 0.32 ``cli/launcher.py``: ``--nproc`` here of ``--world_size`` in all, else all devices."""
    del place
    per_node = flag_count(parsed.flags, "-n", "--nproc").or_else(env_count(env, "LOCAL_WORLD_SIZE"))
    if per_node.is_absent:
        per_node = counts.devices(env)
    total = flag_count(parsed.flags, "--world_size").or_else(env_count(env, "WORLD_SIZE"))
    per_node, total = closed(per_node, parsed.open), closed(total, parsed.open)
    if total.is_absent:
        total = per_node
    nodes = divided(total, per_node) if total.is_known and per_node.is_known else unknown("`--world_size` decides")
    return World(nodes, per_node, total)


def horovodrun(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """Horovod 0.28 ``runner/launch.py``: ``-np`` in all, spread over the slots of ``-H host:slots,...``."""
    del env, place
    total = closed(flag_count(parsed.flags, "-np", "--num_proc"), parsed.open)
    hosts = text_fact(last(parsed.flags, "-H", "--hosts"))
    slots = counts.slots(hosts.get()) if hosts.is_known else ()
    if not slots or len(set(slots)) != 1 or total.get_or(0) != sum(slots):
        return World(unknown("the host list decides"), unknown("the host list decides"), total)
    return World(known(len(slots), *hosts.origins), known(slots[0], *hosts.origins), total)


def plain(parsed: Parsed, env: Mapping[str, Fact[str]], place: Location) -> World:
    """A single process, unless the script itself starts more: a Lightning CLI does, one for each of its devices.

    The operator of a PyTorchJob starts one in each pod, and tells it who it is.
    """
    flags = script_flags(parsed.rest)
    if not is_lightning(parsed):
        by_operator = "PET_NNODES" in env and "RANK" in env and env["RANK"].is_unknown
        return world(env_count(env, "PET_NNODES"), one(place, "one process a pod")) if by_operator else World()
    per_node = text_fact(last(flags, "--trainer.devices"))
    nodes = flag_count(flags, "--trainer.num_nodes")
    text = per_node.get_or("").strip()
    count: Fact[int] = unknown("the devices are not one number")
    if re.fullmatch(r"[1-9]\d{0,4}", text):
        count = known(int(text), *per_node.origins)
    elif re.fullmatch(r"\[\s*\d+(\s*,\s*\d+)*\s*,?\s*\]", text):
        count = known(len(text.strip("[] ,").split(",")), *per_node.origins)
    return world(nodes.or_else(one(place, "one node without `--trainer.num_nodes`")), count)


def is_lightning(parsed: Parsed) -> bool:
    """``python main.py fit --trainer.devices 8``: a Lightning CLI (lightning 2.6 ``pytorch/cli.py``).

    A ``--config`` file in front may say the same things; what stands on the command line wins.
    """
    verb = parsed.rest[0].text if parsed.rest else None
    devices = last(script_flags(parsed.rest), "--trainer.devices")
    return devices is not None and verb in (None, "fit", "validate", "test", "predict")
