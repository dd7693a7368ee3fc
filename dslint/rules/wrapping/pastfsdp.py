"""What runs or saves a model inside FSDP past the forward pass of the wrapper, which gathers the weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event, events
from dslint.python.queries.order import following
from dslint.python.values import Instance
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.zero3 import is_gathered, is_whole

_CONTAINERS = ("torch.nn.Sequential.", "torch.nn.Module", "torch.nn.functional", "torch.nn.parallel")


def past_fsdp(run: RunQuery) -> Iterator[tuple[Event, Event]]:
    """Yield `generate`, `save_pretrained`, and layers that methods run: FSDP hands them on, and gathers nothing."""
    wraps = {atom: found.event for found in run.occurrences("wraps-model") for atom in _divided(run, found.event)}
    for found in (*run.occurrences("generate"), *_saves(run)) if wraps else ():
        wrap = next((wraps[atom] for atom in instances(found.event.receiver) if atom in wraps), None)
        if wrap is not None and not is_whole(found) and not _is_before(found, wrap):
            yield found.event, wrap
    units = [atom for wrap in {id(w): w for w in wraps.values()}.values() for atom in wrap.modules]
    inner = {atom: wrap for wrap in wraps.values() for atom in wrap.modules if units.count(atom) == 1}
    through = {id(found.event.node) for found in run.occurrences("forward") if _is_wrapper(run, found.event)}
    for found in run.occurrences("forward") if inner else ():
        wrap = next((inner[atom] for atom in instances(found.event.receiver) if atom in inner), None)
        if wrap is not None and id(found.event.node) not in through and _is_root_alone(found, wrap):
            yield found.event, wrap


def _saves(run: RunQuery) -> Iterator[Happening]:
    """Yield the calls of `save_pretrained` that ask the model for its weights, where nothing tells FSDP how."""
    for found in run.occurrences("saves"):
        event = found.event
        is_own = event.api.endswith(".save_pretrained") and "state_dict" not in event.arguments and not event.open
        around = function_around(event.module, event.node) or event.module.tree
        if is_own and not event.may and "state_dict_type" not in event.module.text(around):
            yield found


def _is_root_alone(found: Happening, wrap: Event) -> bool:
    """Return whether a layer of the root runs in a method that no forward pass has called.

    A policy that names layers gives these units of their own; what is wrapped later, or by code in between, is unknown.
    """
    event, policy = found.event, wrap.nodes.get("auto_wrap_policy")
    names = [getattr(getattr(call.function, "node", None), "name", "") for call in found.calls]
    if "forward" in names or not any(names) or is_whole(found) or is_gathered(found) or event.may:
        return False
    is_layer = event.api.startswith("torch.nn.") and not event.api.startswith(_CONTAINERS)
    text = ast.unparse(policy) if policy is not None else ""
    if not is_layer or "nn." in text or "size" in text or event.receiver is None:
        return False
    return any(later is event for later in following(found.entry.tree, wrap))


def _is_wrapper(run: RunQuery, event: Event) -> bool:
    """Return whether a forward pass is that of FSDP itself."""
    return run.machine.libraries.is_class(event.api.rpartition(".")[0], "fsdp")


def _is_before(found: Happening, wrap: Event) -> bool:
    """Return whether something runs in the same program before the model is wrapped, and not again afterwards."""
    tree = found.entry.tree
    if not any(event is wrap for event in events(tree)):
        return False
    return not any(later.node is found.event.node for later in following(tree, wrap))


def _divided(run: RunQuery, event: Event) -> list[Instance]:
    """Return the model that FSDP divides at its root."""
    made = event.result.single if event.result is not None else None
    is_fsdp = (
        isinstance(made, Instance) and isinstance(made.cls, str) and run.machine.libraries.is_class(made.cls, "fsdp")
    )
    return instances(event.arguments.get("module")) if is_fsdp else []
