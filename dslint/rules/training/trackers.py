"""Trackers that only the main process has: elsewhere a dummy stands for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.python.events import Alt, Event, Try
from dslint.python.values import Instance
from dslint.python.varies import LOST, OWN, RANKED, UNSURE
from dslint.rules.ranks.groups import is_without_group
from dslint.rules.runs import Happening, RunQuery

_KIND = "main-tracker"
_ASKS = ("hasattr", "isinstance", "getattr", "_blank")
# A test of the thing itself, whatever the reader knows of it.
_ASKS_FOR_IT = re.compile(r"(?i)wandb|writer|track|logger|\brun\b|is (?:not )?None|hasattr|isinstance")


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


def is_for_all(found: Happening) -> bool:
    """Return whether nothing but tests that all ranks decide alike is around the use of a tracker or writer."""
    if any(isinstance(node, Try) and node.handlers for node in found.around) or is_without_group(
        found.event, found.around
    ):
        return False
    tests = [node for node in found.around if isinstance(node, Alt)]
    texts = (node.module.text(getattr(node.node, "test", node.node)) for node in tests)
    return not any(node.varies & (LOST | UNSURE | OWN) for node in tests) and not any(map(_ASKS_FOR_IT.search, texts))


def asks_for_rank(found: Happening) -> bool:
    """Return whether a test of a rank is around an event: in a group whose members nobody knows, if all may pass."""
    return any(isinstance(node, Alt) and node.varies & RANKED for node in found.around)
