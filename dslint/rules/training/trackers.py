"""Trackers that only the main process has: elsewhere a dummy stands for them."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.python.events import Alt, Event, Try
from dslint.python.values import Instance
from dslint.python.varies import LOST, OWN, RANKED, UNSURE
from dslint.rules.runs import RunQuery

_KIND = "main-tracker"
_ASKS = ("hasattr", "isinstance", "getattr", "_blank")


def is_tracker(run: RunQuery, event: Event) -> bool:
    """Return whether an attribute is missing in what stands for a tracker on other ranks."""
    atom = event.receiver.single if event.receiver is not None else None
    row = run.machine.libraries.class_(atom.cls) if isinstance(atom, Instance) and isinstance(atom.cls, str) else None
    return row is not None and row.kind == _KIND


def beyond_blank(run: RunQuery) -> Iterator[Event]:
    """Yield what every rank reads of a tracker, and other ranks than 0 do not have."""
    for found in run.happenings("missing-member"):
        event = found.event
        is_sure = not event.may and event.lanes == run.machine.worlds.full
        if not is_sure or event.varies & (LOST | OWN | RANKED | UNSURE) or not is_tracker(run, event):
            continue
        tests = [node for node in found.around if isinstance(node, Alt)]
        texts = (node.module.text(getattr(node.node, "test", node.node)) for node in tests)
        is_asked = any(word in text for text in texts for word in _ASKS)
        is_tried = any(isinstance(node, Try) and node.handlers for node in found.around)
        if not is_asked and not is_tried:
            yield event
