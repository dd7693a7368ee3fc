"""Commands that start one job, each on its own node: what they say of it must be the same.

They stand in files of their own (``node0.sh``, ``node1.sh``), or in one file with a rank for each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, absent, known
from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.fornode import without_node
from dslint.model.launch.meeting import launcher_is_open, meeting, torchrun_option

if TYPE_CHECKING:
    from dslint.model.plan.runplan import RunPlan

# These meet at this port of node 0 where nobody names another one.
_LAUNCHERS, _DEFAULT_PORT = ("torchrun", "accelerate", "deepspeed"), "29500"
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1?\]?", re.I)
_IP = re.compile(r"\d+\.\d+\.\d+\.\d+")
_HOST = re.compile(r"[a-z\d]([\w-]*[a-z\d])?(\.[\w-]+)*", re.I)


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """What two nodes of one job say differently.

    ``what``: ``nodes`` | ``port`` | ``address`` | ``backend`` | ``id`` | ``rank`` (both claim the same one) |
    ``missing``: nobody starts node ``there`` of ``here`` |
    ``loopback``: the first node meets at its own loopback, which old releases of torchrun tell all others (``here``).
    ``here`` and ``there`` are the two values as text, at ``location`` and ``other``.
    """

    what: str
    here: str
    there: str
    location: Location
    other: Location


@dataclass(frozen=True, slots=True)
class _Agent:
    """One node of a job; ``said`` are the values that all nodes must have in common."""

    index: int
    command: LaunchCommand
    is_static: bool
    rank: Fact[str]
    said: Mapping[str, Fact[str]]


def node_differences(plans: Sequence[RunPlan]) -> dict[int, tuple[NodeDifference, ...]]:
    """What the plans of several nodes say differently, by the index of the plan that differs from the first node."""
    found: dict[int, tuple[NodeDifference, ...]] = {}
    for job in _jobs(plans):
        first, *others = job
        for agent in others:
            differences = (*_compared(first, agent), *(_announced(first, agent) if agent is others[0] else ()))
            if differences:
                found[agent.index] = differences
        if not any(agent.index in found for agent in others):
            lost = tuple(_missing(job))
            if lost:
                found[others[-1].index] = lost
    return found


def _jobs(plans: Sequence[RunPlan]) -> Iterator[list[_Agent]]:
    """The nodes of each job, the one with the lowest rank first."""
    by_files: dict[tuple[Any, ...], list[_Agent]] = {}
    by_ranks: dict[tuple[Any, ...], list[_Agent]] = {}
    for index, plan in enumerate(plans):
        agent = _agent(index, plan)
        if agent is None:
            continue
        command, path = agent.command, agent.command.location.path
        script = (command.launcher, plan.script or (command.script and command.script.text))
        family = without_node(path)
        if family and not command.in_docs:
            by_files.setdefault((family, *script), []).append(agent)
        elif agent.rank.is_known:
            words = tuple(word.text or word.raw for word in command.script_args)
            by_ranks.setdefault((path, *script, words), []).append(agent)
    for agents in by_files.values():
        # With several commands in a file nobody can say which of them belong together.
        if len({agent.command.location.path for agent in agents}) == len(agents) > 1:
            yield _sorted(agents)
    for agents in by_ranks.values():
        yield from (_sorted(job) for job in _by_rank(agents) if len(job) > 1)


def _sorted(agents: list[_Agent]) -> list[_Agent]:
    return sorted(agents, key=lambda agent: (agent.rank.get_or("~"), agent.command.location.path))


def _by_rank(agents: list[_Agent]) -> Iterator[list[_Agent]]:
    """Successive commands with ranks of their own: where a rank comes again, the next job begins."""
    job: list[_Agent] = []
    for agent in agents:
        if any(agent.rank.get() == other.rank.get() for other in job):
            yield job
            job = []
        job.append(agent)
    yield job


def _agent(index: int, plan: RunPlan) -> _Agent | None:
    """The node that a plan starts; ``None`` where it is no part of a job of several nodes."""
    command = plan.command
    if command.outer or command.conditions or launcher_is_open(command) or command.launcher not in _LAUNCHERS:
        return None
    where = meeting(command)
    if where.is_standalone or plan.nodes.get_or(2) < 2:
        return None
    rank, address, port = where.node_rank, where.address, where.port
    if plan.accelerate is not None and command.launcher == "accelerate":
        rank = rank.or_else(_of_file(plan, "machine_rank"))
        address = address.or_else(_of_file(plan, "main_process_ip"))
        port = port.or_else(_of_file(plan, "main_process_port"))
    is_static = command.launcher != "torchrun" or where.backend.get_or("static") == "static"
    if not rank.is_known and not (rank.is_absent and not is_static):
        return None
    said = {"nodes": plan.nodes.map(str), "address": address, "port": port}
    if command.launcher == "torchrun":
        said |= {"backend": where.backend.or_else(known("static")), "id": torchrun_option(command, "--rdzv_id")}
    if is_static:
        said["port"] = port.or_else(known(_DEFAULT_PORT))
    return _Agent(index, command, is_static, rank, said)


def _of_file(plan: RunPlan, key: str) -> Fact[str]:
    fact: Fact[Any] = plan.accelerate.fact(f"/{key}", key) if plan.accelerate is not None else absent()
    return absent() if fact.value is None and fact.is_known else fact.map(str)


def _compared(first: _Agent, agent: _Agent) -> Iterator[NodeDifference]:
    if agent.is_static and first.is_static and agent.rank.is_known and agent.rank.value == first.rank.value:
        yield _difference("rank", first, first.rank, agent, agent.rank)
    for what, here in agent.said.items():
        there = first.said.get(what, absent())
        if not (here.is_known and there.is_known) or here.get() == there.get():
            continue
        if what == "address" and not _are_two_hosts(here.get(), there.get()):
            continue
        yield _difference(what, first, there, agent, here)


def _missing(job: list[_Agent]) -> Iterator[NodeDifference]:
    """The one node that has no file while the others have one; that of the first node may be called by any name.

    Where more are missing the files are an example for many.
    """
    ranks = [agent.rank.get_or("") for agent in job]
    count, paths = job[-1].said["nodes"], {agent.command.location.path for agent in job}
    if len(paths) < len(job) or not count.is_known or not all(rank.isdecimal() for rank in ranks):
        return
    numbers, total = {int(rank) for rank in ranks}, int(count.get())
    left = sorted(set(range(total)) - numbers)
    is_whole = 0 in numbers and max(numbers) < total and not any(agent.command.in_docs for agent in job)
    if len(left) == 1 and is_whole:
        place = count.origins[0] if count.origins else job[-1].command.location
        yield NodeDifference("missing", str(total), str(left[0]), place, job[0].command.location)


def _announced(first: _Agent, agent: _Agent) -> Iterator[NodeDifference]:
    """The loopback of node 0 of a static rendezvous of torchrun, which is its address where it names none."""
    here, there = first.said["address"], agent.said["address"]
    if first.command.launcher != "torchrun" or not first.is_static or first.rank.get_or("") != "0" or here.is_unknown:
        return
    if not _LOOPBACK.fullmatch(here.get_or("127.0.0.1")) or here.get_or("") == "0.0.0.0":
        return
    if agent.is_static and there.is_known and _HOST.fullmatch(there.get()) and not _LOOPBACK.fullmatch(there.get()):
        yield _difference("loopback", agent, there, first, here.or_else(known("127.0.0.1")))


def _are_two_hosts(here: str, there: str) -> bool:
    """Neither is the node itself, and they are not the name and the number of one host."""
    if any(_LOOPBACK.fullmatch(text) or not _HOST.fullmatch(text) for text in (here, there)):
        return False
    return bool(_IP.fullmatch(here)) == bool(_IP.fullmatch(there))


def _difference(what: str, first: _Agent, there: Fact[str], agent: _Agent, here: Fact[str]) -> NodeDifference:
    place = here.origins[0] if here.origins else agent.command.location
    other = there.origins[0] if there.origins else first.command.location
    return NodeDifference(what, here.get(), there.get(), place, other)
