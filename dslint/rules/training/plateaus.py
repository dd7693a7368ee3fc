"""Schedules that follow a metric, and what `accelerator.prepare` makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dslint.python.events import Event
from dslint.python.places import ordered
from dslint.python.values import Instance, Tuple, Value
from dslint.rules.runs import Happening, RunQuery

# Where an Accelerator has these, a schedule that it has prepared goes on by as many steps as there are processes.
_DEFAULTS = {
    "step_scheduler_with_optimizer": True,
    "split_batches": False,
    "dataloader_config": None,
    "deepspeed_plugin": None,
}
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


@dataclass(frozen=True, slots=True)
class PlateauStep:
    """A step of a `ReduceLROnPlateau`: the calls that `prepared` the schedule, and the name of its `metric`."""

    happening: Happening
    prepared: tuple[Event, ...]
    metric: str

    @property
    def event(self) -> Event:
        """Return the event of the step."""
        return self.happening.event


def plateau_steps(run: RunQuery) -> Iterator[PlateauStep]:
    """Yield the steps of schedules that are a `ReduceLROnPlateau` for certain."""
    wrappers: dict[Instance, list[Event]] = {}
    for happening in run.happenings("prepares"):
        for inner, outer in wrapped_by(happening.event):
            if _is_plateau(inner):
                for atom in instances(outer):
                    wrappers.setdefault(atom, []).append(happening.event)
    for happening in run.happenings("scheduler-step"):
        found = instances(happening.event.receiver)
        prepared = tuple(event for atom in found for event in wrappers.get(atom, ()))
        if found and all(_is_plateau(happening.event.receiver) or atom in wrappers for atom in found):
            metric = next((name for name in ("metrics", "*0") if name in happening.event.arguments), "")
            yield PlateauStep(happening, prepared, metric)


def multiplying(run: RunQuery, prepared: Iterable[Event]) -> list[Event]:
    """Return the Accelerators of calls that prepare when each runs a step of a schedule once for each process."""
    makers: dict[Instance, Event] = {}
    for found in run.happenings("starts-group"):
        if found.event.api == "accelerate.Accelerator":
            makers.update(dict.fromkeys(instances(found.event.result), found.event))
    makes = [makers.get(atom) for event in prepared for atom in instances(event.receiver)]
    found_all = [maker for maker in makes if maker is not None and _has_defaults(maker)]
    return found_all if len(found_all) == len(makes) else []


def _has_defaults(maker: Event) -> bool:
    given = {name: value.constants for name, value in maker.arguments.items() if name in _DEFAULTS}
    return not maker.open and all(constants == (_DEFAULTS[name],) for name, constants in given.items())


def wrapped_by(event: Event) -> Iterator[tuple[Value, Value]]:
    """Yield the arguments of a call that prepares, each with what comes back for it."""
    given = list(event.arguments.values())
    result = event.result.single if event.result is not None else None
    if isinstance(result, Tuple) and len(result.items) == len(given):
        yield from zip(given, result.items, strict=True)
    elif event.result is not None and len(given) == 1:
        yield given[0], event.result


def outcomes(event: Event) -> list[Value]:
    """Return what comes back of a call that prepares, one by one."""
    return [outer for _, outer in wrapped_by(event)]


def instances(value: Value | None) -> list[Instance]:
    """Return the objects that a value may be, in the order of the text."""
    return [atom for atom in ordered(value.atoms) if isinstance(atom, Instance)] if value is not None else []


def _is_plateau(value: Value | None) -> bool:
    found = instances(value)
    return bool(found) and all(atom.cls == PLATEAU for atom in found)
