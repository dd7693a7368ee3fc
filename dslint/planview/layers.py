"""Where the boxes of a graph go: columns by the longest path, rows by the neighbours (Sugiyama's method, small)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dslint.planview.graph import Graph

_GAP = 22.0
_SWEEPS = 8


@dataclass(slots=True)
class Place:
    """A box, or a bend of an arrow that passes a column (``height`` of a line): its column, and its middle in y."""

    name: str
    column: int
    height: float
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes and bends by name; ``paths`` are the names that each arrow runs through, by (start, end)."""

    places: Mapping[str, Place]
    paths: Mapping[tuple[str, str], tuple[str, ...]]
    height: float


def layout(graph: Graph, heights: Mapping[str, float]) -> Layout:
    """The places of all nodes: parts that no arrow joins stand below each other."""
    places: dict[str, Place] = {}
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    top = 0.0
    for part in _parts(graph):
        columns = _columns(graph, part)
        own = {name: Place(name, columns[name], heights[name]) for name in part}
        ways = {
            key: _with_bends(edge.start, edge.end, own)
            for key, edge in graph.edges.items()
            if edge.start in columns
        }  # fmt: skip
        height = _arrange(own, ways)
        for place in own.values():
            place.y += top
        top += height + 2 * _GAP
        places.update(own)
        paths.update(ways)
    return Layout(places, paths, max(0.0, top - 2 * _GAP))


def _parts(graph: Graph) -> list[list[str]]:
    """The names of the nodes by connected part."""
    near: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in graph.edges.values():
        near[edge.start].add(edge.end)
        near[edge.end].add(edge.start)
    seen: set[str] = set()
    parts = []
    for first in graph.nodes:
        if first in seen:
            continue
        part, waiting = {first}, [first]
        while waiting:
            new = near[waiting.pop()] - part
            part |= new
            waiting += new
        seen |= part
        parts.append([name for name in graph.nodes if name in part])
    return parts


def _columns(graph: Graph, part: Sequence[str]) -> dict[str, int]:
    """The longest path to each node. Arrows lead from launch to version, so there are no circles."""
    columns = dict.fromkeys(part, 0)
    edges = [edge for edge in graph.edges.values() if edge.start in columns]
    for _ in part:
        moved = False
        for edge in edges:
            if columns[edge.end] <= columns[edge.start]:
                columns[edge.end] = columns[edge.start] + 1
                moved = True
        if not moved:
            break
    return columns


def _with_bends(start: str, end: str, places: dict[str, Place]) -> tuple[str, ...]:
    """The arrow with a bend in each column that it passes."""
    bends = []
    for column in range(places[start].column + 1, places[end].column):
        name = f"{start}\n{end}\n{column}"
        places[name] = Place(name, column, 8.0)
        bends.append(name)
    return (start, *bends, end)


def _arrange(places: dict[str, Place], ways: Mapping[tuple[str, str], tuple[str, ...]]) -> float:
    """Order each column by the middle of the neighbours, then move boxes towards them; returns the height."""
    near: dict[str, list[str]] = {name: [] for name in places}
    for way in ways.values():
        for a, b in pairwise(way):
            near[a].append(b)
            near[b].append(a)
    columns: dict[int, list[Place]] = {}
    for place in places.values():
        columns.setdefault(place.column, []).append(place)
    for column in columns.values():
        _stack(column)
    order = sorted(columns)
    for sweep in range(_SWEEPS):
        for number in order if sweep % 2 == 0 else reversed(order):
            column = columns[number]
            wished = {p.name: _middle([places[n].y for n in near[p.name]], p.y) for p in column}
            column.sort(key=lambda p: wished[p.name])
            for place in column:
                place.y = wished[place.name]
            _separate(column)
    top = min(p.y - p.height / 2 for p in places.values())
    for place in places.values():
        place.y -= top
    return max(p.y + p.height / 2 for p in places.values())


def _middle(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _stack(column: Sequence[Place]) -> None:
    at = 0.0
    for place in column:
        place.y = at + place.height / 2
        at += place.height + _GAP


def _separate(column: Sequence[Place]) -> None:
    """Push boxes apart that overlap, and keep the middle of the column where it was wished."""
    wished = _middle([place.y for place in column], 0.0)
    for above, below in pairwise(column):
        below.y = max(below.y, above.y + (above.height + below.height) / 2 + _GAP)
    shift = wished - _middle([place.y for place in column], 0.0)
    for place in column:
        place.y += shift
