"""What a scan hands on: lines that show something, each with its place, rank and time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hit:
    """A line that shows a symptom. ``stamp`` is in seconds of an unknown year, None where the log has no times."""

    symptom: str
    file: str
    line: int
    rank: int | None
    host: str
    stamp: float | None
    text: str
    groups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A Python exception that ended in a traceback: the line that names it and the innermost frame."""

    hit: Hit
    frame: str

    @property
    def name(self) -> str:
        """The class of the exception without its module."""
        return self.hit.text.partition(":")[0].rpartition(".")[2]


@dataclass
class FileResult:
    """What one log showed. ``hits`` keeps the first of each symptom and rank; ``counts`` counts all of them."""

    path: str
    rank: int | None = None
    bytes: int = 0
    lines: int = 0
    ranks: set[int] = field(default_factory=set)
    hits: list[Hit] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def before(one: Hit, other: Hit) -> bool | None:
    """Whether ``one`` came before ``other``; None when two files have no times to compare."""
    if one.file == other.file:
        return one.line < other.line
    if one.stamp is None or other.stamp is None:
        return None
    return one.stamp < other.stamp
