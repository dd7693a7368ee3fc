"""Changes of a model after DDP has wrapped it, with whose wrapper a later step trains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.python.queries.order import following
from dslint.python.values import Instance
from dslint.rules.training.plateaus import instances

if TYPE_CHECKING:
    from dslint.python.events import Event, Seq
    from dslint.rules.runs import RunQuery


# Layers that certainly have parameters.
_LAYERS = re.compile(
    r"torch\.nn\.(?:Linear|Bilinear|Embedding|Conv\w+|LayerNorm|GroupNorm|BatchNorm\w*|Parameter|LSTM|GRU)"
)


def has_parameters(event: Event) -> bool:
    """Return whether what an event puts into a model is a layer that certainly has parameters."""
    part = event.arguments["value"].single
    return isinstance(part, Instance) and isinstance(part.cls, str) and _LAYERS.fullmatch(part.cls) is not None


def wrapper_of(run: RunQuery, event: Event) -> Instance | None:
    """Return the DDP that an event makes."""
    made = event.result.single if event.result is not None else None
    is_ddp = (
        isinstance(made, Instance) and isinstance(made.cls, str) and run.machine.libraries.is_class(made.cls, "ddp")
    )
    return made if is_ddp and isinstance(made, Instance) else None


def still_used(run: RunQuery, tree: Seq, event: Event, wraps: list[Event]) -> Event | None:
    """Return the call that wrapped the model before, when a later backward pass goes through that wrapper."""
    touched = set(instances(event.receiver if event.receiver is not None else event.arguments.get("module")))
    later = list(following(tree, event))
    for wrap in wraps:
        wrapper = wrapper_of(run, wrap)
        whole = wrap.modules | {wrapper}
        if wrapper is None or not touched & whole or not _is_before(tree, wrap, event, later):
            continue
        for after in later:
            if after is wrap or ("wraps-model" in after.tags and set(instances(after.arguments.get("module"))) & whole):
                break
            if "backward" in after.tags and any(wrapper in made_by for _, _, made_by in after.snapshot.values()):
                return wrap
    return None


def _is_before(tree: Seq, wrap: Event, event: Event, later: list[Event]) -> bool:
    """A wrapper that is made after the move is none that the move could harm."""
    return any(found is event for found in following(tree, wrap)) and not any(found is wrap for found in later)
