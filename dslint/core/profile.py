"""Where the time of a run goes: by stage and by rule. Nobody makes a profile but ``--profile``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

# What a rule may spend time on. ``model``: in answers to its questions that no other rule asks; ``shared``: its part
# of the analyses that several rules of a file have asked for, each of which is divided equally among them.
COLUMNS = ("markers", "precheck", "handlers", "model", "shared", "queries")
# What of it is spent in the walk over the full tree of a script.
_WALKING = ("handlers", "model", "shared")
WALK = "walk with all script rules"
_SHOWN = 0.001


class Profile:
    """Seconds and counts, added up over files and processes.

    ``stages``: seconds and times by name of the stage; ``rules``: seconds by code and column (``COLUMNS``); ``files``:
    how many documents each rule was run on; ``shared``: seconds of the analyses that several rules use, of which the
    first to ask would else pay for all. ``walking``: the rules that the walk over scripts serves.
    """

    __slots__ = ("_asked", "files", "rules", "shared", "stages", "walking")

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}
        self.rules: dict[str, dict[str, float]] = {}
        self.files: dict[str, int] = {}
        self.shared: dict[str, float] = {}
        self.walking: set[str] = set()
        self._asked: dict[str, tuple[list[float], set[str]]] = {}

    def spend(self, stage: str, seconds: float, times: int = 1) -> None:
        """Time of a stage."""
        total = self.stages.setdefault(stage, [0.0, 0])
        total[0] += seconds
        total[1] += times

    def charge(self, code: str, column: str, seconds: float) -> None:
        """Time of a rule."""
        row = self.rules.setdefault(code, dict.fromkeys(COLUMNS, 0.0))
        row[column] += seconds

    def share(self, analysis: str, seconds: float) -> None:
        """Time of an analysis that rules share."""
        self.shared[analysis] = self.shared.get(analysis, 0.0) + seconds

    def ask(self, code: str, analysis: str, seconds: float) -> None:
        """A rule has asked for an analysis that rules share: ``seconds`` long, or for nothing when it was known."""
        spent, rules = self._asked.setdefault(analysis, ([], set()))
        spent.append(seconds)
        rules.add(code)

    def settle(self) -> None:
        """At the end of a file: what each analysis took is divided among the rules that asked for it there."""
        for analysis, (spent, rules) in self._asked.items():
            self.share(analysis, sum(spent))
            for code in rules:
                self.charge(code, "shared", sum(spent) / len(rules))
        self._asked.clear()

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
        for analysis, seconds in other.shared.items():
            self.share(analysis, seconds)
        self.walking |= other.walking
        for code, files in other.files.items():
            self.files[code] = self.files.get(code, 0) + files

    def table(self) -> str:
        """The tables as text, the most expensive first; rules below a millisecond share a line."""
        lines = [f"{'stage':<30}{'seconds':>10}{'times':>8}"]
        for stage, (seconds, times) in sorted(self.stages.items(), key=lambda item: -item[1][0]):
            lines.append(f"{stage:<30}{seconds:>10.3f}{int(times):>8}")
        if self.shared:
            lines += ["", f"{'analysis that rules share':<30}{'seconds':>10}"]
        for analysis, seconds in sorted(self.shared.items(), key=lambda item: -item[1]):
            lines.append(f"{analysis:<30}{seconds:>10.3f}")
        titles = (*COLUMNS, "seconds", *(("of walk",) if self.walking else ()))
        lines += ["", f"{'rule':<12}{'runs':>8}" + "".join(f"{title:>10}" for title in titles)]
        totals = {code: sum(row.values()) for code, row in self.rules.items()}
        shown = [code for code in sorted(totals, key=lambda code: (-totals[code], code)) if totals[code] >= _SHOWN]
        for code in shown:
            cells = "".join(f"{self.rules[code][column]:>10.3f}" for column in COLUMNS)
            lines.append(f"{code:<12}{self.files.get(code, 0):>8}{cells}{totals[code]:>10.3f}{self._of_walk(code)}")
        rest = [total for code, total in totals.items() if code not in shown]
        if rest:
            lines.append(f"{len(rest)} others: {sum(rest):.3f}")
        return "\n".join(lines) + "\n"

    def _of_walk(self, code: str) -> str:
        """The part of the walk that a rule costs, with its part of what rules share; empty for other rules."""
        walk = self.stages.get(WALK, [0.0])[0]
        if code not in self.walking or not walk:
            return ""
        return f"{sum(self.rules[code][column] for column in _WALKING) / walk:>10.1%}"


def stage_of(profile: Profile | None, name: str) -> AbstractContextManager[None]:
    """The block's time for a profile; without one nothing."""
    return profile.stage(name) if profile is not None else nullcontext()
