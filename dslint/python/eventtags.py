"""Which tags the event of a call has: how its object was made, and what the call is given, may take some away."""

from __future__ import annotations

from collections.abc import Mapping

from dslint.python import attributes
from dslint.python.dictionaries import known_keys
from dslint.python.effects import class_in_place
from dslint.python.events import Event
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import Api, Instance, Value


def of_options(m: Machine, row: Row, given: Mapping[str, Value]) -> dict[str, list[Value]]:
    """Return the fields of arguments for which a tag of a row asks: `collective-if options.full_state_dict=True`."""
    found: dict[str, list[Value]] = {}
    for tag in row.tags:
        name, _, key = tag.partition(" ")[2].partition("=")[0].partition(".")
        atom = given[name].single if key and name in given else None
        stored = m.store.get((atom, ("argument", key))) if isinstance(atom, Instance) else None
        if stored is not None:
            found[f"{name}.{key}"] = [stored]
    return found


# The ways of FSDP that divide the parameters of a model.
_SHARDING = frozenset({"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})


def tags_of(m: Machine, row: Row, base: Value | None, given: Mapping[str, Value], *, is_open: bool) -> frozenset[str]:
    """Return the tags of a call of an object: how it was made, and what it is given, may say that it is no collective.

    FSDP with `NO_SHARD` runs like DDP; gradients of a model that `fully_shard` has divided have a norm of all ranks.
    """
    if base is not None and is_unsynced(m, row, base):
        return row.tags - {"collective"}
    if base is not None and "fsdp-forward" in row.tags and not _is_sharding(m, base):
        return row.tags - {"fsdp-forward", "collective"} | {"ddp-forward"}
    if "clip-grad" in row.tags and "parameters" in given and _is_divided(m, given["parameters"]):
        return row.tags | {"collective"}
    if "runs-prompt-encoder" in row.tags and base is not None and has_prompt(m, base):
        return row.tags | {"waits-if-sharded"}
    is_whole = {"prepares", "collective"} <= row.tags and given
    if is_whole and not is_open and all(_is_loader(m, value) for value in given.values()):
        return row.tags - {"collective"}
    return row.tags


# The one tag of functions that make tensors, where it is no event unless the tensor gets a gradient.
_LEAF = "makes-leaf-if "


def is_plain_tensor(row: Row, given: Mapping[str, Value]) -> bool:
    """Return whether a call makes a tensor of which nothing is to be told: it gets no gradient."""
    for tag in row.tags:
        name, _, wanted = tag.removeprefix(_LEAF).partition("=")
        if not tag.startswith(_LEAF) or (name in given and str(next(iter(given[name].constants or ()), "")) == wanted):
            return False
    return True


def has_prompt(m: Machine, model: Value) -> bool:
    """Return whether a model of PEFT certainly has a prompt encoder: it was made with the configuration of one."""
    given = [m.store.get((atom, "peft_config")) for atom in model.atoms if isinstance(atom, Instance)]
    made = [value.single if value is not None else None for value in given]
    return bool(made) and all(
        isinstance(atom, Instance) and attributes.is_instance_of(m, atom.cls, "prompt-configuration") for atom in made
    )


def _is_divided(m: Machine, parameters: Value) -> bool:
    """Return whether parameters are those of a model that `fully_shard` has divided."""
    for event in reversed(m.events):
        if not isinstance(event, Event) or "parameters" not in event.tags or event.result is None:
            continue
        if event.result.atoms == parameters.atoms and event.receiver is not None:
            models = [a for a in event.receiver.atoms if isinstance(a, Instance)]
            return any(m.libraries.is_class(class_in_place(m, model), "fsdp2") for model in models)
    return False


def _is_loader(m: Machine, value: Value) -> bool:
    """Return whether a value is a loader, an optimizer or a schedule, by its class, or a loader by its name."""
    kinds = ("loader", "optimizer", "scheduler")
    atoms = [a for a in value.atoms if isinstance(a, Instance)]
    return len(atoms) == len(value.atoms) > 0 and all(
        (a.cls and attributes.is_instance_of(m, a.cls, *kinds)) or m.store.get((a, "#yields")) is not None
        for a in atoms
    )


def _is_sharding(m: Machine, wrapper: Value) -> bool:
    """Return whether FSDP certainly divides the parameters."""
    for atom in wrapper.atoms:
        value = m.store.get((atom, ("argument", "sharding_strategy"))) if isinstance(atom, Instance) else None
        if value is not None and value.constants != (None,):
            names = {a.path.rpartition(".")[2] if isinstance(a, Api) else "" for a in value.atoms}
            if not names <= _SHARDING:
                return False
    return True


def is_unsynced(m: Machine, row: Row, base: Value) -> bool:
    """Return whether a metric, or every metric of a collection, was made with `sync_on_compute=False`."""
    if not {"collective", "metric"} <= row.tags:
        return False
    inner = m.store.get((base.single, ("argument", "metrics"))) if isinstance(base.single, Instance) else None
    metrics = [base]
    for atom in inner.atoms if inner is not None else ():
        if isinstance(atom, Instance) and atom.cls == "builtins.dict":
            metrics = [m.store.get((atom, ("key", key))) or base for key in known_keys(m, atom)]
        elif isinstance(atom, Instance):
            metrics = m.elements(atom)
    kept = [m.store.get((metric.single, ("argument", "sync_on_compute"))) for metric in metrics]
    return bool(kept) and all(value is not None and value.constants == (False,) for value in kept)
