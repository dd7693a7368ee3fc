"""World size, batch triangle and precision of a run as DeepSpeed will see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.deepspeed.batch import MICRO, STEPS, Batch, Number, data_parallel_world, read_batch
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.hfargs import PAIRS, Arguments
from dslint.model.plan.scriptprofile import ScriptProfile
from dslint.parse.data import DataDoc

_HF_VALUE = {pair.pointer[1:]: pair.value for pair in PAIRS}
# Script flags that split the ranks into groups sharing one sample.
_GROUPS = re.compile(
    r"--?\w*(?:tensor|pipeline|pipe|sequence|context|model|expert)_?\w*(?:parallel|_size)|--?[tpsce]p(_size)?$"
)

_PARALLEL = "ranks may share a sample in parallel groups"


def run_world(command: LaunchCommand, accelerate: DataDoc | None) -> Fact[int]:
    """The world size of the command; the YAML file of accelerate decides where no flag does."""
    world = command.world_size
    if world.is_known:
        return _brief(command)
    if command.launcher != "accelerate" or accelerate is None or _launcher_is_open(command):
        return world
    # In files as in flags ``num_processes`` counts the processes of all machines together.
    fact = accelerate.fact("/num_processes", "world size")
    value = fact.value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return known(value, *fact.origins)
    return world if fact.is_absent else unknown("the number of processes is not read", *fact.origins)


def _brief(command: LaunchCommand) -> Fact[int]:
    """The world size with one place a line; a single node that nobody states needs no place."""
    world, processes = command.world_size, command.processes_per_node
    if command.nodes.get_or(0) == 1 and processes.is_known and processes.origins:
        world = Fact("known", world.get(), processes.origins, world.reason)
    places = {str(origin): origin for origin in reversed(world.origins)}
    return Fact("known", world.get(), tuple(reversed(places.values())), world.reason)


def _launcher_is_open(command: LaunchCommand) -> bool:
    """A flag or an unreadable word of the launcher itself may state the number of processes."""
    if command.launcher_flag("--num_processes", "--num_machines") is not None:
        return True
    end = command.script.location.span.start if command.script is not None else command.location.span.end
    return any(word.text is None and word.location.span.start < end for word in command.words)


def batch_of(doc: DataDoc | None, consumer: Fact[str], arguments: Arguments) -> Batch:
    """The three numbers after the Trainer filled its placeholders."""
    if doc is None:
        return Batch()
    batch = read_batch(doc)
    if consumer.get_or("") != "hf":
        return batch
    # The Trainer multiplies its own values, also where the config leaves the key out.
    micro = _filled(doc, MICRO, batch.micro, arguments)
    return Batch(batch.train, micro, _filled(doc, STEPS, batch.steps, arguments))


def _filled(doc: DataDoc, key: str, stated: Fact[Number], arguments: Arguments) -> Fact[Number]:
    if stated.is_known or (doc.has(f"/{key}") and doc.get(f"/{key}") not in ("auto", None)):
        return stated
    value = _HF_VALUE[key](arguments)
    if value.is_known and not value.origins:
        return Fact("known", value.get(), (), "the default of `TrainingArguments`")
    return value


def batch_world(
    doc: DataDoc | None, world: Fact[int], command: LaunchCommand, profile: ScriptProfile | None
) -> Fact[Any]:
    """The world size that DeepSpeed multiplies with; unknown where ranks may share a sample."""
    if doc is None:
        return absent()
    stages = profile.pipeline_stages if profile is not None else absent()
    if profile is not None and profile.is_parallel and not stages.is_known:
        return unknown(_PARALLEL)
    if any(_GROUPS.match(flag.name.replace("-", "_").replace("__", "--", 1)) for flag in command.script_flags):
        return unknown(_PARALLEL)
    if not stages.is_known:
        return data_parallel_world(doc, world)
    # ``DeepSpeedConfig(config, model.mpu())``: the ranks of a pipeline share a sample.
    if not world.is_known or world.get() % stages.get():
        return unknown(_PARALLEL)
    return Fact("known", world.get() // stages.get(), (*stages.origins, *world.origins), world.reason)


def stated_world(doc: DataDoc, of_run: Fact[Any], stated: Fact[int]) -> Fact[Any]:
    """The world size of the run, else the one that the user states."""
    if of_run.is_known or of_run.reason == _PARALLEL or not stated.is_known:
        return of_run
    return data_parallel_world(doc, stated)


def precision_of(doc: DataDoc | None, consumer: Fact[str], arguments: Mapping[str, Fact[Any]]) -> Fact[str]:
    """``bf16`` | ``fp16`` | ``fp32`` of the engine."""
    if doc is None:
        return absent()
    states: dict[str, Any] = {}
    for name in ("bf16", "fp16"):
        value = doc.get(f"/{name}/enabled", False)
        if value == "auto" and consumer.get_or("") == "hf":
            fact = _HF_VALUE[f"{name}/enabled"](arguments)
            value = fact.get_or(None)
        states[name] = value
        if value is True:
            return known(name, *([doc.value(f"/{name}/enabled")] if doc.has(f"/{name}/enabled") else []))
    if all(value is False for value in states.values()):
        return known("fp32")
    return unknown("the precision is filled in at run time")
