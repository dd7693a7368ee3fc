"""Hover: a key of a DeepSpeed config, or the run that a launch command starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from dslint.core.source import Span
from dslint.server.configkeys import config_at, described, pointer_at
from dslint.server.runs import plan_text, plans_at, reach

if TYPE_CHECKING:
    from dslint.engine.session import Look
    from dslint.server.positions import Text


def hover(path: str, text: Text, position: types.Position, look: Look | None) -> types.Hover | None:
    """What is known of the place; ``None`` where that is nothing."""
    offset = text.offset(position)
    doc = config_at(path, text.text, offset, look)
    pointer = pointer_at(doc, offset) if doc is not None else None
    if doc is not None and pointer is not None:
        said = described(doc, pointer, look)
        span = doc.keys.get(pointer) or doc.values[pointer]
        return _shown(said, text.range(span)) if said else None
    plans = plans_at(path, offset, look) if look is not None else []
    if not plans or look is None:
        return None
    start, end = reach(plans[0])
    return _shown(f"```text\n{plan_text(plans, look)}\n```", text.range(Span(start, end)))


def _shown(markdown: str, place: types.Range) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, markdown), place)
