"""The comparison of many programs: counts, and the shapes of those on which the oracle and dslint differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from oracle.compare import compare, smallest
from oracle.program import program
from oracle.shape import shape


@dataclass
class Report:
    """``counts`` by verdict; ``shapes`` of false alarms and misses: how many, the first seed, what was said."""

    counts: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, dict[str, tuple[int, int, str]]] = field(default_factory=lambda: {"false alarm": {}, "miss": {}})

    @property
    def programs(self) -> int:
        return sum(self.counts.values())

    @property
    def parted(self) -> int:
        """Programs whose ranks part, those that are out of scope by design left out."""
        return self.counts["agree"] + self.counts["miss"]

    def add(self, verdict: str, seed: int, detail: str, small: str) -> None:
        found = self.shapes[verdict]
        key = shape(small)
        count, first, said = found.get(key, (0, seed, detail))
        found[key] = (count + 1, first, said)


def report(seeds: Iterable[int], *, shrink_misses: bool) -> Report:
    """Compare the programs of these seeds; every false alarm is cut down, misses when asked."""
    result = Report()
    for seed in seeds:
        made = program(seed)
        found = compare(made)
        result.counts[found.verdict] += 1
        if found.verdict == "false alarm" or (shrink_misses and found.verdict == "miss"):
            result.add(found.verdict, seed, found.detail, smallest(made.source, found.verdict))
    return result
