"""What rules ask about `DistributedDataParallel`: which objects it makes, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.python.values import Instance

if TYPE_CHECKING:
    from dslint.python.events import Event
    from dslint.rules.runs import RunQuery


def dynamic_wrapper(run: RunQuery, event: Event) -> Instance | None:
    """Return the DDP that an event makes, when it is without `static_graph` for certain."""
    made = event.result.single if "wraps-model" in event.tags and event.result is not None else None
    if not isinstance(made, Instance) or event.open or not isinstance(made.cls, str):
        return None
    return made if _is_false(event, "static_graph") and run.machine.libraries.is_class(made.cls, "ddp") else None


def plain_wrapper(run: RunQuery, event: Event) -> Instance | None:
    """Return the DDP that an event makes of one model, when every parameter must get a gradient in every step."""
    made = dynamic_wrapper(run, event)
    model = event.arguments.get("module")
    is_certain = not event.may and model is not None and model.single is not None
    return made if is_certain and _is_false(event, "find_unused_parameters") else None


def _is_false(event: Event, name: str) -> bool:
    value = event.arguments.get(name)
    return value is None or value.constants == (False,)
