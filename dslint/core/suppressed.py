"""A finding that is not reported, and why."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.core.finding import Finding
from dslint.core.source import Location


@dataclass(frozen=True, slots=True)
class Suppressed:
    """``kind`` is ``inSource`` (a comment at ``location``) or ``external`` (settings), as SARIF calls them."""

    finding: Finding
    reason: str = ""
    kind: str = "inSource"
    location: Location | None = None
