"""What a dictionary says that is a DeepSpeed configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dslint.python import dictionaries, launches, parsers
from dslint.python.attributes import child
from dslint.python.configfiles import config_file
from dslint.python.dictionaries import known_keys
from dslint.python.escapes import is_escaped
from dslint.python.events import Event, Settings
from dslint.python.heap import REST
from dslint.python.machine import Machine
from dslint.python.values import NONE, Const, Instance, Value, const

_STEPS = "gradient_accumulation_steps"
_BATCH, _MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
# A dictionary with none of these may be no whole configuration.
_SECTIONS = frozenset({"zero_optimization", "optimizer", "fp16", "bf16"})
# A strategy of Lightning by its name: `deepspeed_stage_3_offload`.
_STRATEGY = re.compile(r"deepspeed_stage_(\d)")
_MOST_SETTINGS, _DEEPEST = 200, 3


def stage_of(m: Machine, value: Value | None) -> int | None:
    """Return the ZeRO stage in a configuration; `None` where it is no dictionary or file, or the stage is not known."""
    written = config_file(m, value)
    if written is not None:
        return _stage_in(written.get("zero_optimization", {}))
    zero = _item(m, value, "zero_optimization")
    if zero is None:
        return None
    stage = _item(m, zero, "stage")
    known = stage.constants if stage is not None else None
    return known[0] if known is not None and len(known) == 1 and isinstance(known[0], int) else None


def _stage_in(section: object) -> int | None:
    """Return the stage of a section of a file; without one ZeRO is off."""
    stage = section.get("stage", 0) if isinstance(section, dict) else None
    return stage if type(stage) is int else None


def accumulation_of(m: Machine, value: Value | None) -> Value | None:
    """Return the micro batches of a step in a configuration; `None` where it is no dictionary or file, or is silent.

    DeepSpeed takes 1 where only one size of a batch is stated.
    """
    written = config_file(m, value)
    if written is not None:
        return _steps_in(written)
    stated = _item(m, value, _STEPS)
    atom = value.single if value is not None else None
    if stated is not None or not isinstance(atom, Instance) or atom.cls != "builtins.dict":
        return stated
    rest = m.store.get((atom, REST))
    keys = set(known_keys(m, atom))
    is_whole = (rest is None or not rest.atoms) and len(keys & {_BATCH, _MICRO}) == 1 and keys & _SECTIONS
    return const(1) if is_whole else None


def micro_batch_of(m: Machine, value: Value | None) -> Value | None:
    """Return the samples of a micro batch that a configuration states; `None` where it is silent."""
    written = config_file(m, value)
    if written is None:
        return _item(m, value, _MICRO)
    size = written.get(_MICRO)
    return const(size) if type(size) is int else None


def _steps_in(written: Mapping[str, object]) -> Value | None:
    steps = written.get(_STEPS)
    if steps is None and len(written.keys() & {_BATCH, _MICRO}) == 1:
        return const(1)
    return const(steps) if type(steps) is int else None


def stated(m: Machine, names: Sequence[str], given: Mapping[str, Value]) -> Value | None:
    """Return the first argument of these names that is given; `plugin.steps`: what an object got that it is."""
    for name in names:
        first, _, inner = name.partition(".")
        value = given.get(first)
        atom = value.single if value is not None else None
        if inner:
            value = m.store.get((atom, ("argument", inner))) if isinstance(atom, Instance) else None
        if value is not None and value.constants != (None,):
            return value
    return None


def named_stage(m: Machine, names: Sequence[str], given: Mapping[str, Value]) -> int | None:
    """Return the ZeRO stage that the first of these arguments tells: a number, or a configuration."""
    value: Value | None = None
    for name in names:
        first, *inner = name.split(".")
        value = given.get(first)
        for part in inner:
            atom = value.single if value is not None else None
            value = m.store.get((atom, ("argument", part))) if isinstance(atom, Instance) else None
        if value is not None and value.constants != (None,):
            break
    known = value.constants if value is not None else None
    if known is not None and len(known) == 1 and type(known[0]) is int:
        return known[0]
    word = _STRATEGY.match(str(known[0])) if known is not None and len(known) == 1 else None
    return int(word[1]) if word is not None else stage_of(m, value)


def _item(m: Machine, value: Value | None, key: str) -> Value | None:
    atom = value.single if value is not None else None
    return m.store.get((atom, ("key", key))) if isinstance(atom, Instance) else None


def keys_of(m: Machine, value: Value | None) -> frozenset[str] | None:
    """Return the keys that a configuration may have; `None` where it may have others, or is no dictionary."""
    atom = value.single if value is not None else None
    if not isinstance(atom, Instance) or atom.cls != "builtins.dict" or is_escaped(m, atom):
        return None
    rest = m.store.get((atom, REST))
    known = dictionaries.known_keys(m, atom)
    if (rest is not None and rest.atoms) or not all(isinstance(key, str) for key in known):
        return None
    return frozenset(str(key) for key in known)


def settings_of(m: Machine, value: Value | None) -> Settings | None:
    """Return what a configuration holds, section by section; `None` where it is not one dictionary (or nothing)."""
    atoms = [atom for atom in value.atoms if atom != Const(None)] if value is not None else []
    atom = atoms[0] if len(atoms) == 1 else None
    if not isinstance(atom, Instance) or atom.cls != "builtins.dict":
        return None
    found = Settings(atom.node)
    pending = [("", atom)]
    while pending and len(found.items) < _MOST_SETTINGS:
        pointer, section = pending.pop()
        rest = m.store.get((section, REST))
        if not is_escaped(m, section) and (rest is None or not rest.atoms):
            found.whole.add(pointer)
        for key in dictionaries.known_keys(m, section):
            stored, inner = m.store.get((section, ("key", key))), f"{pointer}/{key}"
            if stored is None or not stored.atoms:
                continue
            found.items[inner] = stored
            if pointer in found.maybe or dictionaries.may_lack(m, section, key):
                found.maybe.add(inner)
            single = stored.single
            if isinstance(single, Instance) and single.cls == "builtins.dict" and pointer.count("/") < _DEEPEST:
                pending.append((inner, single))
    return found


def configured(m: Machine, event: Event, row: Mapping[str, Any]) -> None:
    """Keep with a call what is known of its configuration: the stage, its keys, and whether an argument names one."""
    config = event.arguments.get(row["config"])
    if config is None or config.constants == (None,):
        config = event.arguments.get(row.get("config_or", ""), config)
    event.config, event.stage, event.keys = config, stage_of(m, config), keys_of(m, config)
    event.settings = settings_of(m, config)
    if "config_in" in row:
        argument, _, name = row["config_in"].partition(".")
        event.named = _named(m, event.arguments.get(argument), name, event.node)


def _named(m: Machine, value: Value | None, name: str, node: ast.AST) -> Value | None:
    """Return the field of a namespace that names a configuration: `None` of Python where it certainly has none."""
    if value is None or value.constants == (None,):
        return NONE
    atom = value.single
    if not isinstance(atom, Instance):
        return None
    if m.store.get((atom, name)) is None and parsers.is_closed(m, atom):
        return None if launches.is_rewritten(m.frame.module) else NONE
    return m.store.get((atom, name)) or child(m, atom, name)
