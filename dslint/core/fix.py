"""Fixes are text edits: one value serves --fix, --diff, SARIF and editors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dslint.core.source import Span


class Safety(Enum):
    """Whether a fix keeps what the run does apart from the defect (``SAFE``) or needs a person's eye."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``span`` of the file at ``path`` by ``text`` (an insertion when the span is empty)."""

    path: str
    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that together mend one finding; ``title`` is an imperative ("Delete the key").

    ``uncovers``: before it, text was not read as its author meant it. What is found there afterwards is not new.
    """

    title: str
    edits: tuple[Edit, ...]
    safety: Safety = Safety.SAFE
    uncovers: bool = False


class OverlapError(ValueError):
    """Two edits touch the same text."""


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits, which must belong to one file.

    Raises:
        OverlapError: two edits touch the same text.
    """
    out: list[str] = []
    at = 0
    for edit in sorted(set(edits), key=lambda e: (e.span.start, e.span.end)):
        if edit.span.start < at:
            raise OverlapError(f"edits overlap at offset {edit.span.start} of {edit.path}")
        out += [text[at : edit.span.start], edit.text]
        at = edit.span.end
    out.append(text[at:])
    return "".join(out)
