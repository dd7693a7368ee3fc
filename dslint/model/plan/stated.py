"""Numbers of nodes and processes that the user states: they fill what no file says, and override nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dslint.core.fact import Fact, absent, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import World
from dslint.model.launch.launchers.counts import ELSEWHERE


@dataclass(frozen=True, slots=True)
class StatedCounts:
    """What the user states; a flag of dslint is the reason of its number, a line of the settings its place."""

    nodes: Fact[int] = field(default_factory=absent)
    processes_per_node: Fact[int] = field(default_factory=absent)
    world_size: Fact[int] = field(default_factory=absent)

    @property
    def total(self) -> Fact[int]:
        """The world size, stated or multiplied."""
        return self.world_size if self.world_size.is_known else _times(self.nodes, self.processes_per_node)


def filled_counts(command: LaunchCommand, counts: World, stated: StatedCounts) -> World:
    """The counts of a command with what the user states where no file says a number.

    The default of a launcher is no such number: the platform may set variables (``PET_NNODES``) or a hostfile.
    """
    if stated == StatedCounts():
        return counts
    default_nodes, default_each = _defaults(command, counts)
    if _is_assumed_machine(command):  # the total is certain, how many machines share it is not
        own = World(absent(), absent(), counts.total)
        counts = counts if stated.nodes.is_absent and stated.processes_per_node.is_absent else _open(counts)
    else:
        own = World(
            absent() if default_nodes else counts.nodes,
            absent() if default_each else counts.per_node,
            absent() if default_nodes or default_each else counts.total,
        )
    nodes, each = _or(own.nodes, stated.nodes), _or(own.per_node, stated.processes_per_node)
    world = own.total if own.total.is_known else stated.world_size
    if world.is_known:
        nodes, each = _or(nodes, _over(world, each)), _or(each, _over(world, nodes))
    if own.total.is_known:
        # Hosts may differ in their processes: what does not come out even is not filled in.
        is_even = _times(nodes, each).get_or(0) == own.total.get()
        return World(nodes, each, own.total) if is_even else counts
    if stated.world_size.is_known and not (nodes.is_known or each.is_known):
        return World(nodes, each, stated.world_size)
    nodes = counts.nodes if default_nodes and not nodes.is_known else nodes
    each = counts.per_node if default_each and not each.is_known else each
    product = _times(nodes, each)
    return World(nodes, each, product if product.is_known else _or(counts.total, stated.world_size))


def contradictions(counts: World, stated: StatedCounts) -> Iterator[str]:
    """Where files say another number than the user; the files count. ``counts`` are the filled ones."""
    pairs: tuple[tuple[str, Fact[int], Fact[int]], ...] = (
        ("nodes", counts.nodes, stated.nodes),
        ("processes on each node", counts.per_node, stated.processes_per_node),
        ("processes in all", counts.total, stated.world_size),
    )
    for what, found, said in pairs:
        if found.is_known and said.is_known and found.get() != said.get():
            yield f"{said_at(said)} is not used: the run has {found.at()} {what}"


def said_at(fact: Fact[Any]) -> str:
    """``--nnodes 2``, or the number with the line of the settings."""
    return fact.reason if fact.reason else fact.at()


# Launcher -> options and variables that say the number of nodes, and those of processes on each.
_SAYS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "torchrun": (frozenset({"--nnodes", "PET_NNODES"}), frozenset({"--nproc_per_node", "PET_NPROC_PER_NODE"})),
    # Without these ``/job/hostfile`` of the cluster decides.
    "deepspeed": (frozenset({"-H", "--hostfile", "-i", "--include", "-e", "--exclude", "--num_nodes"}), frozenset()),
    **dict.fromkeys(
        ("xtuner", "swift", "llamafactory"), (frozenset({"NNODES"}), frozenset({"NPROC_PER_NODE"}))
    ),
}  # fmt: skip


def _defaults(command: LaunchCommand, counts: World) -> tuple[bool, bool]:
    """The number of nodes, and of processes on each, is a default of the launcher."""
    if command.launcher not in _SAYS:
        return False, False
    said = [
        command.launcher_flag(*names) is not None or not names.isdisjoint(command.env)
        for names in _SAYS[command.launcher]
    ]
    is_deepspeed = command.launcher == "deepspeed"
    return (
        counts.nodes.is_known and not said[0],
        counts.per_node.is_known and not (said[1] or is_deepspeed),
    )


def _is_assumed_machine(command: LaunchCommand) -> bool:
    """``accelerate launch --num_processes N`` of which nothing says how many machines share it: one is assumed."""
    return command.launcher == "accelerate" and command.launcher_flag("--num_machines", *ELSEWHERE) is None


def _open(counts: World) -> World:
    """The counts of which only the total is certain."""
    why: Fact[int] = unknown("the machines do not share the processes evenly")
    return World(why, why, counts.total)


def _or(fact: Fact[int], other: Fact[int]) -> Fact[int]:
    return fact if fact.is_known or not other.is_known else other


def _times(a: Fact[int], b: Fact[int]) -> Fact[int]:
    if not (a.is_known and b.is_known):
        return absent()
    return _joined(a.get() * b.get(), a, b)


def _over(total: Fact[int], part: Fact[int]) -> Fact[int]:
    if not (total.is_known and part.is_known) or total.get() % part.get():
        return absent()
    return _joined(total.get() // part.get(), total, part)


def _joined(value: int, *facts: Fact[int]) -> Fact[int]:
    """A number with the places and flags of all that it was made from."""
    places = dict.fromkeys(place for fact in facts for place in fact.origins)
    reasons = dict.fromkeys(fact.reason for fact in facts if fact.reason)
    return Fact("known", value, tuple(places), ", ".join(reasons))
