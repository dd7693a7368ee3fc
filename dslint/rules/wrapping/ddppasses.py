"""Forward passes of models that certainly run inside `DistributedDataParallel`, and how often a module runs in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.python.events import Alt, Call, Event, Node, Seq, children, events, walk
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import Instance
from dslint.rules.ranks.intent import intends_several
from dslint.rules.training.accelerators import MODEL, maker_of
from dslint.rules.training.lightnings import waits_for_all_gradients
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import dynamic_wrapper, plain_wrapper

if TYPE_CHECKING:
    from dslint.python.values import Value
    from dslint.rules.runs import RunQuery

# With a plugin an Accelerator wraps models by something else.
PLUGINS = ("deepspeed_plugin", "fsdp_plugin", "megatron_lm_plugin")


def ddp_passes(run: RunQuery, tree: Seq) -> Iterator[tuple[Event, Call]]:
    """Yield the forward passes of models that certainly are in a DDP, each with the call that wrapped the model."""
    wraps = {id(event.node): event for event in events(tree) if event.tags & {"wraps-model", "prepares"}}
    bodies: dict[int, Call] = {}
    for node in walk(tree):
        if isinstance(node, Call):
            bodies.setdefault(id(node.node), node)
    for event in events(tree):
        atom = event.receiver.single if event.receiver is not None and "ddp-forward" in event.tags else None
        wrap = wraps.get(id(atom.node)) if isinstance(atom, Instance) else None
        if wrap is not None and _is_ddp(run, wrap) and id(event.node) in bodies:
            yield wrap, bodies[id(event.node)]


def _is_ddp(run: RunQuery, wrap: Event) -> bool:
    """Return whether a call makes a DDP, as far as the script decides, and one without a static graph."""
    if "prepares" in wrap.tags:
        maker = maker_of(run, wrap.receiver)
        return maker is not None and not {*PLUGINS, "kwargs_handlers"} & set(maker.arguments)
    if "trainer" not in wrap.tags:
        return dynamic_wrapper(run, wrap) is not None
    made = [run.makers.get(atom) for atom in instances(wrap.arguments.get("args"))]
    told = made[0] if len(made) == 1 else None
    if told is None or "training-arguments" not in told.tags or told.open:
        return False
    return not {"deepspeed", "fsdp"} & set(told.arguments) and bool(intends_several(run))


def is_reduced(run: RunQuery, backward: Event) -> bool:
    """Return whether the loss of a backward pass certainly comes from a model that reduces its gradients."""
    behind = {atom for _, _, made_by in backward.snapshot.values() for atom in made_by}
    return any(isinstance(atom, Instance) and _reduces(run, atom) for atom in behind)


def _reduces(run: RunQuery, atom: Instance) -> bool:
    return atom.cls == MODEL or (isinstance(atom.cls, str) and run.machine.libraries.is_class(atom.cls, "ddp"))


def times_run(node: Node, module: Value | None) -> int:
    """Count how often a module runs in a forward pass, with a graph: of a test the side with more."""
    if is_frozen(node):
        return 0
    if isinstance(node, Event):
        mine = module.single if module is not None else None
        receiver = node.receiver.single if node.receiver is not None and "forward" in node.tags else None
        return int(receiver is not None and receiver is mine)
    counted = [times_run(child, module) for child in children(node)]
    return max(counted, default=0) if isinstance(node, Alt) else sum(counted)


def waits_for_all(run: RunQuery, wrap: Event) -> bool:
    """Return whether a call makes a DDP that waits for a gradient of every parameter, as far as the script decides."""
    if "prepares" in wrap.tags:
        maker = maker_of(run, wrap.receiver)
        if maker is None or set(PLUGINS) & set(maker.arguments):
            return False
        return "kwargs_handlers" not in maker.arguments or _are_plain(run, maker)
    if "trainer-train" in wrap.tags:
        return waits_for_all_gradients(run, wrap)
    if "trainer" not in wrap.tags:
        return plain_wrapper(run, wrap) is not None
    made = [run.makers.get(atom) for atom in instances(wrap.arguments.get("args"))]
    told = made[0] if len(made) == 1 else None
    if told is None or "training-arguments" not in told.tags or {"deepspeed", "fsdp"} & set(told.arguments):
        return False
    looks = told.arguments.get("ddp_find_unused_parameters")
    return looks is not None and looks.constants == (False,) and not told.open


def _are_plain(run: RunQuery, maker: Event) -> bool:
    """Return whether none of the handlers of an Accelerator lets DDP look for unused parameters."""
    handlers = maker.items.get("kwargs_handlers", [])
    made = [run.makers.get(atom) for value in handlers for atom in instances(value)]
    if not made or len(made) != len(handlers):
        return False
    return all(
        event is not None
        and not event.open
        and all(
            name not in event.arguments or event.arguments[name].constants == (False,)
            for name in ("find_unused_parameters", "static_graph")
        )
        for event in made
    )
