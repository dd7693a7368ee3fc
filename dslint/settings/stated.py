"""How many machines and processes the user states, each number with the flag or the line that says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile, Span
from dslint.settings.errors import Origin, shown
from dslint.settings.places import find_line

if TYPE_CHECKING:
    from dslint.settings.table import Launch

_COUNTS = ("nnodes", "nproc-per-node", "world-size")


@dataclass(frozen=True, slots=True)
class Stated:
    """One number. ``by`` is what says it (``--nnodes 2``), ``place`` the line of a settings file."""

    value: int
    by: str
    place: Location | None = None


@dataclass(frozen=True, slots=True)
class StatedLaunch:
    """``nnodes`` x ``nproc_per_node`` = ``world_size``; ``None`` for what is not stated."""

    nnodes: Stated | None = None
    nproc_per_node: Stated | None = None
    world_size: Stated | None = None

    @property
    def numbers(self) -> tuple[int | None, ...]:
        """The three numbers without their places."""
        return tuple(s.value if s is not None else None for s in (self.nnodes, self.nproc_per_node, self.world_size))

    @property
    def total(self) -> int | None:
        """The world size, stated or multiplied."""
        if self.world_size is not None:
            return self.world_size.value
        if self.nnodes is not None and self.nproc_per_node is not None:
            return self.nnodes.value * self.nproc_per_node.value
        return None

    def under(self, later: StatedLaunch) -> StatedLaunch:
        """With the numbers that are stated later, which win: what they contradict is dropped."""
        merged = StatedLaunch(
            later.nnodes or self.nnodes,
            later.nproc_per_node or self.nproc_per_node,
            later.world_size or self.world_size,
        )
        if later.world_size is None and later != StatedLaunch():
            # Nodes or processes, stated later, beat a world size stated before.
            return replace(merged, world_size=None)
        if merged.contradiction():
            return later
        return merged

    def contradiction(self) -> str:
        """Why the three numbers cannot hold together; empty when they can."""
        nodes, each, world = (number or 0 for number in self.numbers)
        if world and nodes and each and nodes * each != world:
            return f"`nnodes` {nodes} x `nproc-per-node` {each} is {nodes * each}, but `world-size` says {world}"
        for name, part in (("nnodes", nodes), ("nproc-per-node", each)):
            if world and part and world % part:
                return f"`world-size` {world} is no multiple of `{name}` {part}"
        return ""


def stated_of(launch: Launch | None, world_size: int | None, origin: Origin, table: tuple[str, ...]) -> StatedLaunch:
    """The numbers of one source. ``table`` is the key of ``launch`` in it; ``world_size`` is the key at the top.

    Raises:
        SettingsError: the numbers contradict each other.
    """
    found: dict[str, Stated] = {}
    for name in _COUNTS:
        value = getattr(launch, name.replace("-", "_")) if launch is not None else None
        if value is not None:
            found[name] = _stated(name, value, origin, (*table, name))
    if world_size is not None:
        if "world-size" in found and found["world-size"].value != world_size:
            raise origin.error("`world-size` and `launch.world-size` contradict each other", ("world-size",))
        found.setdefault("world-size", _stated("world-size", world_size, origin, ("world-size",)))
    stated = StatedLaunch(found.get("nnodes"), found.get("nproc-per-node"), found.get("world-size"))
    if problem := stated.contradiction():
        raise origin.error(problem, table if launch is not None else ("world-size",))
    return stated


def _stated(name: str, value: int, origin: Origin, key: tuple[str, ...]) -> Stated:
    if origin.file is None:
        return Stated(value, f"--{name} {value}")
    path = shown(origin.file).replace("\\", "/")
    line = find_line(origin.text, (*origin.table, *key)) or 1
    source = SourceFile(path, origin.text)
    start = source.offset(line, 1)
    text = source.line_text(line)
    span = Span(start + len(text) - len(text.lstrip()), start + len(text.rstrip()))
    return Stated(value, f"{path}:{line}", source.location(span, f"{name} {value}"))


def by_pattern(
    launches: Mapping[str, Launch], origin: Origin, before: Mapping[str, StatedLaunch]
) -> dict[str, StatedLaunch]:
    """The numbers for file patterns of one source over those of earlier ones; the pattern stated last comes last."""
    out = dict(before)
    for pattern, launch in launches.items():
        stated = stated_of(launch, None, origin, ("launches", pattern))
        out[pattern] = out.pop(pattern, StatedLaunch()).under(stated)
    return out
