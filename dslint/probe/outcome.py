"""What happened in an arm, and what follows from two arms. Standard library only; everything turns into JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
    """How a rank, or a whole arm, ended.

    ``OK``: it returned a value that the oracle accepts. ``WRONG``: it returned, but the value is wrong. ``RAISE``: a
    Python exception. ``SIGNAL``: the process died by a signal. ``STALL``: no progress, every thread asleep, the same
    stack twice. ``LIMIT``: still running when the time was over: says nothing.
    """

    OK = "ok"
    WRONG = "wrong"
    RAISE = "raise"
    SIGNAL = "signal"
    STALL = "stall"
    LIMIT = "limit"


class Verdict(Enum):
    """What two arms say of a finding."""

    CONFIRMED = "CONFIRMED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    NEEDS = "NEEDS"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """The end of one rank.

    Attributes:
        text: exception as ``Type: message``, name of the signal, or the frame in which the rank stands.
        stack: innermost frame first, ``function (file:line)``.
        marks: what the rank said of its progress.
        output: last lines of its standard error.
    """

    rank: int
    kind: Kind
    value: Any = None
    text: str = ""
    stack: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True)
class ArmOutcome:
    """The end of an arm; ``reason`` is the judgement of the value oracle when ``kind`` is WRONG."""

    kind: Kind
    ranks: tuple[RankOutcome, ...]
    seconds: float
    reason: str = ""

    @property
    def values(self) -> list[Any]:
        """The values of the ranks in order."""
        return [rank.value for rank in self.ranks]

    @property
    def text(self) -> str:
        """Everything that the arm said, for the matcher of an expectation."""
        parts = [self.reason]
        for rank in self.ranks:
            if rank.kind is not Kind.OK:
                parts += [rank.text, *rank.stack, rank.output]
        return "\n".join(part for part in parts if part)

    def sentence(self) -> str:
        """One sentence for people: ``rank 0 waits in barrier (distributed_c10d.py:4712); rank 1 finished``."""
        if self.kind is Kind.WRONG:
            return self.reason
        if self.kind is Kind.OK:
            return f"{_ranks(len(self.ranks))} finished"
        words = []
        for rank in self.ranks:
            said = {
                Kind.OK: "finished",
                Kind.STALL: f"waits in {rank.text}",
                Kind.RAISE: f"raises {_short(rank.text)}",
                Kind.SIGNAL: f"dies by {rank.text}",
                Kind.LIMIT: "was still running",
                Kind.WRONG: "returned",
            }[rank.kind]
            words.append((rank.rank, said))
        if len({said for _, said in words}) == 1 and len(words) > 1:
            return f"{_ranks(len(words))}: each {words[0][1]}"
        together: dict[str, list[int]] = {}
        for number, said in words:
            together.setdefault(said, []).append(number)
        return "; ".join(f"{names(ranks)} {_of(said, len(ranks))}" for said, ranks in together.items())


def combine(ranks: tuple[RankOutcome, ...], seconds: float) -> ArmOutcome:
    """The outcome of an arm from those of its ranks: what went wrong first in the order of Kind wins."""
    kinds = {rank.kind for rank in ranks}
    for kind in (Kind.LIMIT, Kind.RAISE, Kind.SIGNAL, Kind.STALL):
        if kind in kinds:
            return ArmOutcome(kind, ranks, seconds)
    return ArmOutcome(Kind.OK, ranks, seconds)


def names(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 1-3``, ``ranks 0, 2-5, 7``."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    told = [str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(told)}"


def _of(said: str, count: int) -> str:
    """``waits in x`` -> ``wait in x`` when it is said of several ranks."""
    verb, blank, rest = said.partition(" ")
    plural = {"waits": "wait", "raises": "raise", "dies": "die", "was": "were"}
    return f"{plural.get(verb, verb) if count > 1 else verb}{blank}{rest}"


def _ranks(count: int) -> str:
    return "the process" if count == 1 else ("both ranks" if count == 2 else f"all {count} ranks")


def _short(text: str, limit: int = 240) -> str:
    # Where torch was built says nothing to anybody.
    first = " ".join(re.sub(r"\[/\S+?:\d+\] ", "", text).split())
    return first if len(first) <= limit else first[: limit - 3] + "..."
