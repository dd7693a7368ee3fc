"""Results for people: a line a check, below it the reason and the command that repairs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, Status
from dslint.doctor.results import Checked, packages

_STYLES = {
    Status.OK: "green", Status.UNKNOWN: "cyan", Status.WARNING: "yellow", Status.ERROR: "bold red"
}  # fmt: skip
_INDENT = " " * 9


class _Piece(NamedTuple):
    text: str
    style: str = ""


def write(machine: Machine, results: Sequence[Checked], stream: IO[str], *, color: bool) -> None:
    """Write the report; with ``color`` by rich, else as plain lines."""
    lines = list(_lines(machine, results))
    if not color:
        stream.writelines("".join(_printable(piece.text) for piece in line) + "\n" for line in lines)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*((_printable(piece.text), piece.style) for piece in line)))


def _lines(machine: Machine, results: Sequence[Checked]) -> Iterator[list[_Piece]]:
    present = [f"{name} {release}" for name, release in packages(machine).items() if release]
    version = ".".join(str(part) for part in machine.python.version)
    yield [_Piece(f"{machine.python.executable} (Python {version}, {', '.join(present) or 'no torch'})", "dim")]
    for result in results:
        for outcome in result.outcomes:
            yield from _outcome(result.meta, outcome)
    yield [_Piece(_summary(results))]


def _outcome(meta: CheckMeta, outcome: Outcome) -> Iterator[list[_Piece]]:
    status = outcome.status
    yield [_Piece(f"{status.value:<9}", _STYLES[status]), _Piece(f"{meta.id} {meta.name}: "), _Piece(outcome.found)]
    if outcome.reason:
        yield [_Piece(_INDENT + outcome.reason, "dim" if status is Status.OK else "")]
    if outcome.repair:
        yield [_Piece(_INDENT + "repair: "), _Piece(outcome.repair, "bold")]


def _summary(results: Sequence[Checked]) -> str:
    counts = Counter(outcome.status for result in results for outcome in result.outcomes)
    parts = []
    for status in (Status.ERROR, Status.WARNING, Status.UNKNOWN):
        if counts[status]:
            plural = "s" if counts[status] > 1 and status is not Status.UNKNOWN else ""
            parts.append(f"{counts[status]} {status.value}{plural}")
    noun = "check" if len(results) == 1 else "checks"
    return f"{len(results)} {noun}: {', '.join(parts) or 'nothing wrong'}."


def _printable(text: str) -> str:
    # File names and the output of programs can hold anything; a report stays a line each.
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
