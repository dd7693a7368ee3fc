"""What a check says: a status, what was found, why that matters, and a command that repairs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple


class Status(str, Enum):
    """How a check ended. ``UNKNOWN`` says that it could not be decided; it never fails the command."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    ERROR = "error"

    @property
    def fails(self) -> bool:
        """Whether the exit code becomes 1."""
        return self in (Status.WARNING, Status.ERROR)


class CheckMeta(NamedTuple):
    """The name plate of a check: ``D1`` to ``D14``, a kebab-case name, one line for lists."""

    id: str
    name: str
    summary: str


class StaleLock(NamedTuple):
    """A lock file that was proven stale, as it was then: another file under the same name is not it.

    ``modified`` is in nanoseconds; an inode number alone is given to the next file.
    """

    path: Path
    device: int
    inode: int
    modified: int


@dataclass(frozen=True)
class Outcome:
    """One thing a check found.

    ``reason`` says what it does to a job, ``repair`` is a shell command (empty where a person must decide), and
    ``lock`` is set when ``--fix`` may remove that file.
    """

    status: Status
    found: str
    reason: str = ""
    repair: str = ""
    lock: StaleLock | None = None


def ok(found: str, reason: str = "") -> Outcome:
    """Nothing wrong."""
    return Outcome(Status.OK, found, reason)


def unknown(found: str, reason: str = "", repair: str = "") -> Outcome:
    """It could not be decided; ``reason`` says what was missing."""
    return Outcome(Status.UNKNOWN, found, reason, repair)


def warning(found: str, reason: str, repair: str = "") -> Outcome:
    """It can stop, slow or spoil a job."""
    return Outcome(Status.WARNING, found, reason, repair)


def error(found: str, reason: str, repair: str = "") -> Outcome:
    """It stops or spoils a job that meets it."""
    return Outcome(Status.ERROR, found, reason, repair)
