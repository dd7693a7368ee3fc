"""What an Accelerator of accelerate is told when it is made, and what it is given to prepare."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Event, Loop, events
from dslint.python.queries.order import following
from dslint.python.values import Instance, Value
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances, wrapped_by

ACCELERATOR = "accelerate.Accelerator"
MODEL = "accelerate.PreparedModel"
OPTIMIZER = "accelerate.optimizer.AcceleratedOptimizer"
SCHEDULE = "accelerate.scheduler.AcceleratedScheduler"
LOADER = "accelerate.data_loader.DataLoaderShard"
DEEPSPEED, FSDP = "accelerate.DeepSpeedPlugin", "accelerate.FullyShardedDataParallelPlugin"


@dataclass(frozen=True, slots=True)
class Prepared:
    """One argument of `prepare`: what it `was`, and what it certainly is now (a class; empty: nobody knows)."""

    was: Value
    cls: str


def maker_of(run: RunQuery, value: Value | None) -> Event | None:
    """Return the call that made the Accelerator that a value certainly is."""
    found = instances(value)
    if value is None or len(found) != 1 or len(value.atoms) != 1:
        return None
    maker = run.makers.get(found[0])
    return maker if maker is not None and maker.api == ACCELERATOR and not maker.open else None


def splits_batches(run: RunQuery) -> bool:
    """Return whether an Accelerator may divide each batch over the processes."""
    makers = [h.event for h in run.occurrences("starts-group") if h.event.api == ACCELERATOR]
    return any(m.open or {"split_batches", "dataloader_config"} & m.arguments.keys() for m in makers)


def plugin_of(run: RunQuery, accelerator: Event, name: str, cls: str) -> Event | None:
    """Return the call that made the plugin which an Accelerator certainly has."""
    given = accelerator.arguments.get(name)
    atom = given.single if given is not None else None
    return run.makers.get(atom) if isinstance(atom, Instance) and atom.cls == cls else None


def uses_deepspeed(run: RunQuery, accelerator: Event) -> bool:
    """Return whether an Accelerator certainly works with DeepSpeed: its plugin says so, or all launch commands do."""
    if plugin_of(run, accelerator, "deepspeed_plugin", DEEPSPEED) is not None:
        return True
    launched = run.context.launcher.get_or("") == "accelerate" and not run.context.zero_stage.is_absent
    return launched and not {"deepspeed_plugin", "fsdp_plugin"} & set(accelerator.arguments)


def prepared_by(event: Event) -> list[Prepared] | None:
    """Return the arguments of a call that prepares in their order; `None` where they are not all known."""
    given = [value for name, value in event.arguments.items() if name.startswith("*") or name in _GIVEN]
    found = list(wrapped_by(event)) if not event.open else []
    if not found or len(found) != len(given):
        return None
    return [Prepared(was, _class(outer)) for was, outer in found]


_GIVEN = ("args", "model", "optimizer", "scheduler", "data_loader")


def _class(outer: Value) -> str:
    """Return the class that all of the objects of a value have."""
    classes = {atom.cls for atom in instances(outer)}
    is_sure = len(classes) == 1 and len(instances(outer)) == len(outer.atoms)
    found = classes.pop() if is_sure else ""
    return found if isinstance(found, str) else ""


def prepared_ddp(run: RunQuery, event: Event) -> Instance | None:
    """Return the one model that a call certainly wraps in a DDP which waits for a gradient of every parameter."""
    if "prepares" not in event.tags or event.may or run.context.world_size.get_or(0) <= 1:
        return None
    maker = maker_of(run, event.receiver)
    if maker is None or maker.arguments.keys() & _CHANGES_DDP or run.is_fsdp or run.stage is not None:
        return None
    models = {atom for value in _results(event) for atom in instances(value) if atom.cls == MODEL}
    return models.pop() if len(models) == 1 else None


def prepared_ddps(run: RunQuery, event: Event, *settled: str) -> dict[Instance, frozenset[Instance]]:
    """Return the models that a call certainly wraps in DDP, each with the modules inside.

    `settled` are arguments of DDP that must have their defaults: a handler may give any others.
    """
    is_known = "prepares" in event.tags and not event.may and not run.is_fsdp and run.stage is None
    maker = maker_of(run, event.receiver) if is_known else None
    if maker is None or maker.arguments.keys() & (_CHANGES_DDP - {_HANDLERS}) or not _leave(run, maker, settled):
        return {}
    found: dict[Instance, frozenset[Instance]] = {}
    for was, outer in wrapped_by(event):
        given, made = was.single, outer.single
        if isinstance(given, Instance) and isinstance(made, Instance) and made.cls == MODEL:
            found[made] = event.inside.get(given, frozenset())
    return found


def _leave(run: RunQuery, maker: Event, settled: tuple[str, ...]) -> bool:
    """Return whether the handlers of an Accelerator certainly leave some arguments of DDP at their defaults."""
    given = maker.arguments.get(_HANDLERS)
    if given is None or given.constants == (None,):
        return True
    made = [run.makers.get(atom) for value in maker.items.get(_HANDLERS, []) for atom in instances(value)]
    return bool(made) and all(h is not None and not h.open and not h.arguments.keys() & {*settled} for h in made)


_HANDLERS = "kwargs_handlers"
# What may make an Accelerator wrap models in something else, or with arguments of its own.
_CHANGES_DDP = frozenset(
    {"kwargs_handlers", "deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin", "megatron_lm_plugin", "torch_tp_plugin",
     "parallelism_config", "dynamo_plugin"}
)  # fmt: skip


def _results(event: Event) -> list[Value]:
    return [outer for _, outer in wrapped_by(event)]


def earlier_prepares(found: Happening) -> Iterator[Event]:
    """Yield the calls that may have prepared something with the same Accelerator before a call."""
    event, tree = found.event, found.entry.tree
    own = set(instances(event.receiver))
    after = {id(other) for other in following(tree, event)}
    for other in events(tree):
        is_own = "prepares" in other.tags and other.api.startswith(ACCELERATOR) and set(instances(other.receiver)) & own
        if is_own and other.node is not event.node and id(other) not in after:
            yield other


def models_in(given: list[Prepared]) -> list[Value]:
    """Return the different models among the arguments of a call that prepares."""
    found: list[Value] = []
    for part in given:
        if part.cls == MODEL and not any(set(part.was.atoms) & set(other.atoms) for other in found):
            found.append(part.was)
    return found


def fills_up(run: RunQuery, loop: Loop) -> bool:
    """Return whether a loop goes over a loader whose last batch accelerate fills up: prepared, with its last batch."""
    atoms = loop.subject.atoms if loop.subject is not None else ()
    classes = {atom.cls if isinstance(atom, Instance) else "" for atom in atoms}
    made = [node for node in loop.items if isinstance(node, ast.Call)]
    words = {ast.unparse(k) for node in made for k in node.keywords}
    is_even = all(_is_even(found.event) for found in run.happenings("starts-group"))
    return classes == {LOADER} and bool(made) and is_even and not any("drop_last" in w or "**" in w for w in words)


def _is_even(event: Event) -> bool:
    """Return whether an Accelerator fills the last batch up, as it does by default."""
    given = [event.arguments.get(name) for name in ("dataloader_config", "even_batches")]
    return not event.open and all(value is None or value.constants in ((None,), (True,)) for value in given)
