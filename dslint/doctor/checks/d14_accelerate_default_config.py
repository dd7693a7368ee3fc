"""The config that `accelerate launch` reads when none is named.

**What.** `default_config.yaml` below `$HF_HOME/accelerate` (default `~/.cache/huggingface/accelerate`): values that do
not fit this machine.

**Why it hurts.** `accelerate launch train.py` takes the number of machines and processes, the distributed type and the
DeepSpeed config from there, silently. A file that was made for another job starts too many ranks, waits for machines
that do not take part, or turns DeepSpeed on.

**How it is known.** The file is read as text (flat `key: value` lines, as `accelerate config` writes them) and compared
with the GPUs of this machine.

**Repair.** Name the config (`accelerate launch --config_file`), or move the default one away.

**Evidence.** `accelerate/commands/config/config_args.py`; most published `accelerate launch` commands name no config.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dslint.core.words import counted
from dslint.doctor.gpus import gpus
from dslint.doctor.launch import several_machines
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.words import listed

META = CheckMeta("D14", "accelerate-default-config", "The config that accelerate launch reads when none is named")

_LINE = re.compile(r"(\s*)([A-Za-z_]\w*):(?:\s+(.*?))?\s*\Z")
_TOLD = ("distributed_type", "num_machines", "num_processes", "mixed_precision")
_NO_MACHINE = ("", "1", "0")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each value that does not fit, one in all when they do."""
    path = _path(machine)
    if path is None:
        return [ok("there is none: accelerate launch asks the command line only")]
    text = machine.read(path)
    values = None if text is None else _values(path, text)
    if values is None:
        reason = "accelerate launch without --config_file fails on it" if text is not None else "it cannot be read"
        return [(error if text is not None else unknown)(f"{path} is no config", reason, _away(path))]
    outcomes = list(_compare(machine, path, values))
    told = listed([f"{name}: {values[name]}" for name in _TOLD if name in values])
    return outcomes or [ok(f"{path} ({told})", "accelerate launch without --config_file takes these")]


def _path(machine: Machine) -> Path | None:
    cache = machine.folder("XDG_CACHE_HOME", machine.home / ".cache")
    folder = machine.folder("HF_HOME", cache / "huggingface") / "accelerate"
    paths = (folder / "default_config.yaml", folder / "default_config.json")
    return next((path for path in paths if os.path.isfile(path)), None)


def _away(path: Path) -> str:
    return f"mv {shlex.quote(str(path))} {shlex.quote(str(path) + '.old')}"


def _values(path: Path, text: str) -> dict[str, str] | None:
    """Scalars by key, those of a section as ``section.key``; None when it is no mapping."""
    if path.suffix == ".json":
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return _flat(loaded) if isinstance(loaded, dict) else None
    values: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        match = _LINE.match(re.sub(r"(^|\s)#.*", "", line))
        if not match:
            if line.strip() and not line.lstrip().startswith(("#", "-", "{", "}")) and not line.startswith(" "):
                return None
            continue
        indent, key, value = match[1], match[2], (match[3] or "").strip("'\"")
        if not indent:
            section = key
        values[f"{section}.{key}" if indent else key] = value
    return values


def _flat(loaded: dict[str, object]) -> dict[str, str]:
    values = {key: str(value) for key, value in loaded.items()}
    for key, value in loaded.items():
        if isinstance(value, dict):
            values.update({f"{key}.{inner}": str(item) for inner, item in value.items()})
    return values


def _compare(machine: Machine, path: Path, values: dict[str, str]) -> Iterator[Outcome]:
    unasked = f"accelerate launch without --config_file takes it from {path}"
    machines, processes = values.get("num_machines", ""), values.get("num_processes", "")
    if machines not in _NO_MACHINE and machines.isdecimal() and not several_machines(machine):
        rank = values.get("machine_rank") or "0"
        reason = f"{unasked} and waits for {int(machines) - 1} other machines (this one is rank {rank})"
        yield warning(f"num_machines: {machines}", reason, _away(path))
    found = gpus(machine)
    count = len(found.gpus)
    cpu = values.get("use_cpu", "").lower() == "true"
    if cpu and count:
        yield warning(f"use_cpu: true on a machine with {counted(count, 'GPU')}", unasked, _away(path))
    elif processes.isdecimal() and machines in _NO_MACHINE and count and int(processes) > count:
        reason = f"{unasked}; ranks beyond the GPUs end with `invalid device ordinal`"
        yield error(f"num_processes: {processes} on a machine with {counted(count, 'GPU')}", reason, _away(path))
    named = values.get("deepspeed_config.deepspeed_config_file", "")
    if named and named not in ("none", "null", "None", "~") and not os.path.exists(machine.expand(named)):
        yield error(f"deepspeed_config_file: {named} does not exist here", unasked, _away(path))
