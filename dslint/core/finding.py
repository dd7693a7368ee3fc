"""What dslint reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dslint.core.fix import Fix
from dslint.core.source import Location


class Severity(Enum):
    """How sure and how bad.

    ``ERROR``: it raises, hangs or trains wrongly, as observed with the real library.
    ``WARNING``: likely, or it depends on something dslint cannot see.
    ``INFO``: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error: for thresholds and sorting."""
        return _RANK[self]


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Confidence(Enum):
    """``CERTAIN``: all that the finding rests on was read. ``LIKELY``: it rests on what ``Finding.assumptions`` say."""

    CERTAIN = "certain"
    LIKELY = "likely"

    @property
    def rank(self) -> int:
        """0 for likely, 1 for certain: for thresholds."""
        return int(self is Confidence.CERTAIN)


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect at one place; ``related`` holds the other half of a cross-file finding.

    ``assumptions`` are sentences of ``core/assumptions.py`` that go on after "assumes that".
    """

    code: str
    name: str
    severity: Severity
    message: str
    location: Location
    related: tuple[Location, ...] = ()
    hint: str = ""
    fix: Fix | None = None
    assumptions: tuple[str, ...] = ()
    # JSON pointer of the key in a config file: JSON has no comments, so settings suppress by it.
    pointer: str | None = None
    # What an experiment needs to know of this finding: (name, value), values as JSON has them.
    facts: tuple[tuple[str, str | int | float | bool | None], ...] = ()
    # Where the file stands, if it is beside the work of the project ("a test"): the reason why this is a note.
    aside: str = ""

    @property
    def confidence(self) -> Confidence:
        """Certain, unless the finding rests on an assumption."""
        return Confidence.LIKELY if self.assumptions else Confidence.CERTAIN

    def fact(self, name: str) -> str | int | float | bool | None:
        """The fact with this name; ``None`` when the rule does not state it."""
        return dict(self.facts).get(name)

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, str]:
        """Path, cell, line, column, code: the order of every report."""
        r = self.location.region
        return (self.location.path, r.cell or 0, r.line, r.column, self.code, self.message)
