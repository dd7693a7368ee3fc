"""World size, batch triangle and precision of a run as DeepSpeed will see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.deepspeed.batch import MICRO, STEPS, Batch, Number, data_parallel_world, read_batch
from dslint.model.hfargs import PAIRS, Arguments
from dslint.model.launch import LaunchCommand
from dslint.model.scriptprofile import ScriptProfile
from dslint.parse.data import DataDoc

_HF_VALUE = {pair.pointer[1:]: pair.value for pair in PAIRS}
# Script flags that split the ranks into groups sharing one sample.
_GROUPS = re.compile(
    r"--?\w*(?:tensor|pipeline|pipe|sequence|context|model|expert)_?\w*(?:parallel|_size)|--?[tpsce]p(_size)?$"
)

_PARALLEL = "ranks may share a sample in parallel groups"


def yaml_world(command: LaunchCommand, accelerate: DataDoc | None) -> Fact[int]:
    """The world size of the command; ``accelerate launch`` reads it from its YAML file when no flag gives it."""
    if not command.world_size.is_absent or accelerate is None or command.launcher != "accelerate":
        return command.world_size
    if command.launcher_flag("--num_processes", "--num_machines") is not None:
        return command.world_size
    # In both files and flags ``num_processes`` counts the processes of all machines together.
    fact = accelerate.fact("/num_processes", "world size")
    value = fact.value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return known(value, *fact.origins)
    return command.world_size if fact.is_absent else unknown("the number of processes is not read", *fact.origins)


def batch_of(doc: DataDoc | None, consumer: Fact[str], arguments: Arguments, profile: ScriptProfile | None) -> Batch:
    """The three numbers after the Trainer filled its placeholders."""
    if doc is None:
        return Batch()
    if profile is not None and profile.changes_config:
        changed: Fact[Number] = unknown("the script changes the config")
        return Batch(changed, changed, changed)
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
    if profile is not None and profile.is_parallel:
        return unknown(_PARALLEL)
    if any(_GROUPS.match(flag.name.replace("-", "_").replace("__", "--", 1)) for flag in command.script_flags):
        return unknown(_PARALLEL)
    return data_parallel_world(doc, world)


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
            value = fact.get() if fact.is_known else None
        states[name] = value
        if value is True:
            return known(name, *([doc.value(f"/{name}/enabled")] if doc.has(f"/{name}/enabled") else []))
    if all(value is False for value in states.values()):
        return known("fp32")
    return unknown("the precision is filled in at run time")
