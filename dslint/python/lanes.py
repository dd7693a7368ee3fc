"""Simulated ranks: a value that depends on the rank is kept once for each rank of a few worlds, side by side.

A *lane* is one rank of one world. Arithmetic on the rank is then ordinary arithmetic, lane by lane, and a test of the
rank splits the lanes; `rank % 2 == 0`, `rank in (0, 1)` or a dictionary keyed by the rank need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dslint.python.varies import LOCAL, NODE, RANK, WORLD


@dataclass(frozen=True)
class Worlds:
    """The worlds that are looked at: (machines, processes on each). `stated`: a launch command says so."""

    shapes: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (1, 4), (2, 8))
    stated: bool = False

    @cached_property
    def lanes(self) -> tuple[tuple[int, int, int, int, int, int], ...]:
        """Return for each lane: rank, local rank, machine, number of ranks, of ranks of a machine, of machines."""
        return tuple(
            (node * local + at, at, node, nodes * local, local, nodes)
            for nodes, local in self.shapes
            for node in range(nodes)
            for at in range(local)
        )

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the lanes of each world."""
        found, start = [], 0
        for nodes, local in self.shapes:
            found.append(tuple(range(start, start + nodes * local)))
            start += nodes * local
        return tuple(found)

    @cached_property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Return the lanes of each machine of each world."""
        keys: dict[tuple[int, int], list[int]] = {}
        for world, group in enumerate(self.groups):
            for lane in group:
                keys.setdefault((world, self.lanes[lane][2]), []).append(lane)
        return tuple(tuple(group) for group in keys.values())

    @cached_property
    def count(self) -> int:
        """Return the number of lanes."""
        return len(self.lanes)

    @cached_property
    def full(self) -> int:
        """Return the mask of all lanes."""
        return (1 << self.count) - 1

    @cached_property
    def main(self) -> int:
        """Return the mask of the first rank of each world."""
        return self.mask(lambda lane: self.lanes[lane][0] == 0)

    @cached_property
    def larger(self) -> int:
        """Return the largest rank that is looked at; numbers above it are compared with nothing."""
        return max(lane[0] for lane in self.lanes)

    def mask(self, holds: Callable[[int], bool]) -> int:
        """Return the mask of the lanes for which `holds`."""
        return sum(1 << lane for lane in range(self.count) if holds(lane))

    def varies(self, values: tuple[object, ...], mask: int) -> int:
        """Return by what the values of the lanes in `mask` differ inside a world; `WORLD` if only between worlds."""
        key = (values, mask)
        known = _VARIES.get((self, key))
        if known is None:
            if len(_VARIES) > 50_000:
                _VARIES.clear()
            known = _VARIES[self, key] = self._varies(values, mask)
        return known

    def _varies(self, values: tuple[object, ...], mask: int) -> int:
        if not self._parts(self.groups, values, mask):
            differs = len({_key(values[lane]) for lane in range(self.count) if mask >> lane & 1}) > 1
            return WORLD if differs and not self.stated else 0
        by_local: dict[tuple[int, int], tuple[int, ...]] = {}
        for world, group in enumerate(self.groups):
            for lane in group:
                at = (world, self.lanes[lane][1])
                by_local[at] = (*by_local.get(at, ()), lane)
        within = self._parts(self.machines, values, mask)
        across = self._parts(tuple(by_local.values()), values, mask)
        if within and across:
            return RANK
        return LOCAL if within else NODE

    @staticmethod
    def _parts(groups: tuple[tuple[int, ...], ...], values: tuple[object, ...], mask: int) -> bool:
        return any(len({_key(values[lane]) for lane in group if mask >> lane & 1}) > 1 for group in groups)


_VARIES: dict[tuple[Worlds, tuple[tuple[object, ...], int]], int] = {}


def _key(value: object) -> tuple[type, object]:
    return type(value), value
