"""Where the time of a run goes: by stage and by rule. Nobody makes a profile but ``--profile``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

# What a rule may spend time on. ``handlers``: its visitor, or its check of a config, with the answers to its questions.
COLUMNS = ("markers", "precheck", "handlers", "queries")
WALK = "walk with all script rules"
_SHOWN = 0.001


class Profile:
    """Seconds and counts, added up over files and processes.

    ``stages``: seconds and times by name of the stage; ``rules``: seconds by code and column (``COLUMNS``); ``files``:
    how many documents each rule was run on.
    """

    __slots__ = ("files", "rules", "stages")

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}
        self.rules: dict[str, dict[str, float]] = {}
        self.files: dict[str, int] = {}

    def spend(self, stage: str, seconds: float, times: int = 1) -> None:
        """Time of a stage."""
        total = self.stages.setdefault(stage, [0.0, 0])
        total[0] += seconds
        total[1] += times

    def charge(self, code: str, column: str, seconds: float) -> None:
        """Time of a rule."""
        row = self.rules.setdefault(code, dict.fromkeys(COLUMNS, 0.0))
        row[column] += seconds

    def count(self, code: str) -> None:
        """The rule was run on one more document."""
        self.files[code] = self.files.get(code, 0) + 1

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The time of a block."""
        start = perf_counter()
        try:
            yield
        finally:
            self.spend(name, perf_counter() - start)

    def charged(self, code: str, column: str, call: Callable[[], T]) -> T:
        """The result of a call whose time the rule pays."""
        start = perf_counter()
        try:
            return call()
        finally:
            self.charge(code, column, perf_counter() - start)

    def add(self, other: Profile) -> None:
        """What another process, or another file, has spent."""
        for stage, (seconds, times) in other.stages.items():
            self.spend(stage, seconds, int(times))
        for code, row in other.rules.items():
            for column, seconds in row.items():
                self.charge(code, column, seconds)
        for code, files in other.files.items():
            self.files[code] = self.files.get(code, 0) + files

    def table(self) -> str:
        """The tables as text, the most expensive first; rules below a millisecond share a line."""
        lines = [f"{'stage':<30}{'seconds':>10}{'times':>8}"]
        for stage, (seconds, times) in sorted(self.stages.items(), key=lambda item: -item[1][0]):
            lines.append(f"{stage:<30}{seconds:>10.3f}{int(times):>8}")
        titles = (*COLUMNS, "seconds")
        lines += ["", f"{'rule':<12}{'runs':>8}" + "".join(f"{title:>10}" for title in titles)]
        totals = {code: sum(row.values()) for code, row in self.rules.items()}
        shown = [code for code in sorted(totals, key=lambda code: (-totals[code], code)) if totals[code] >= _SHOWN]
        for code in shown:
            cells = "".join(f"{self.rules[code][column]:>10.3f}" for column in COLUMNS)
            lines.append(f"{code:<12}{self.files.get(code, 0):>8}{cells}{totals[code]:>10.3f}")
        rest = [total for code, total in totals.items() if code not in shown]
        if rest:
            lines.append(f"{len(rest)} others: {sum(rest):.3f}")
        return "\n".join(lines) + "\n"


def stage_of(profile: Profile | None, name: str) -> AbstractContextManager[None]:
    """The block's time for a profile; without one nothing."""
    return profile.stage(name) if profile is not None else nullcontext()
