"""The hosts of a ``deepspeed`` run, where the hostfile is in the project."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.devices import number
from dslint.model.launch.launchers.base import World
from dslint.model.plan.appearing import is_mentioned, is_written, may_appear
from dslint.model.plan.files import Files
from dslint.model.plan.mpihosts import LAUNCHERS, host_lines, mpi_counts
from dslint.model.plan.tree import files_by_name

_LINE = re.compile(r"(\S+)\s+slots=(\d+)")
_COMMENT = r"^\s*#.*"
# What the launcher reads where no option names a file (deepspeed 0.19.8 ``launcher/runner.py``: ``DLTS_HOSTFILE``).
_DEFAULT = "/job/hostfile"
# Where a project may tell its readers to write it.
_DOCUMENTS, _MOST_DOCUMENTS = (".md", ".rst"), 200
# Host -> how many processes, or which of its slots.
Hosts = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class HostfileProblem:
    """Why DeepSpeed does not take a hostfile: ``kind`` is ``missing`` | ``empty`` | ``line`` | ``twice``; or what the
    command asks of it and it does not have: ``nodes`` | ``slots``, or a ``host`` or ``slot`` of ``--include`` and
    ``--exclude``.

    ``location`` is the line of the file, or the word that names it or asks too much; ``first`` where a host stands
    already, or where the file says less: ``count`` hosts, or slots of a host. ``unnamed``: the command asks for several
    nodes, ``text`` of them, and nobody speaks of a hostfile.
    """

    kind: str
    text: str
    location: Location
    first: Location | None = None
    count: int = 0


def hostfile_problem(command: LaunchCommand, files: Files) -> HostfileProblem | None:
    """The first thing that ``deepspeed.launcher.runner`` does not like about the hostfile of a command."""
    flag = command.launcher_flag("-H", "--hostfile") if command.launcher == "deepspeed" else None
    if flag is None:
        return _unnamed(command, files)
    if flag.value is None or not flag.value.text:
        return None
    text, raw = flag.value.text, flag.value.raw
    path = files.find(text)
    source = files.workspace.read(path) if path is not None else None
    if source is None:
        gone = path is None and "/" in text and not may_appear(files, text, raw)
        return HostfileProblem("missing", text, flag.value.location) if gone else None
    if is_written(files, text, raw) or is_mentioned(files, text, raw):
        return None
    return _problem(source, text, flag.value.location) or _too_few(command, source)


def _unnamed(command: LaunchCommand, files: Files) -> HostfileProblem | None:
    """``--num_nodes 2`` where neither the launch file nor a document of the project speaks of a hostfile."""
    flag = command.launcher_flag("--num_nodes") if command.launcher == "deepspeed" else None
    nodes = number(flag)
    if flag is None or nodes is None or nodes < 2 or command.hides_options:
        return None
    source = files.workspace.read(files.launch_path)
    if source is None or "hostfile" in source.text or _is_documented(files):
        return None
    return HostfileProblem("unnamed", str(nodes), flag.location)


def _is_documented(files: Files) -> bool:
    """A document of the project tells its readers of the file that DeepSpeed reads by default."""
    names = files_by_name(files.launch_path, files.workspace)
    around = f"{posixpath.dirname(files.launch_path)}/"
    told = [path for name, found in names.items() if name.lower().endswith(_DOCUMENTS) for path in found]
    # One in the folder of the launch file, or in one above it: others speak of other programs.
    paths = [path for path in told if not (folder := posixpath.dirname(path)) or around.startswith(f"{folder}/")]
    return any(files.workspace.memo("default hostfile", path, _speaks) for path in paths[:_MOST_DOCUMENTS])


def _speaks(source: SourceFile) -> bool:
    return _DEFAULT in source.text


def _too_few(command: LaunchCommand, source: SourceFile) -> HostfileProblem | None:
    """``--num_nodes`` or ``--num_gpus`` asks for more than the file has: DeepSpeed says nothing about it."""
    hosts = _hosts(source)
    chosen = command.launcher_flag("-i", "--include") or command.launcher_flag("-e", "--exclude")
    if hosts is None or chosen is not None:
        return _not_there(chosen, source, hosts) if hosts is not None and chosen is not None else None
    nodes, gpus = _number(command, "--num_nodes"), _number(command, "--num_gpus", "--num_accelerators")
    if nodes.get_or(0) > len(hosts):
        return HostfileProblem("nodes", str(nodes.get()), nodes.origins[0], _first(source, hosts), len(hosts))
    host, slots = min(_first_hosts(hosts, nodes).items(), key=lambda item: len(item[1]))
    if gpus.get_or(0) > len(slots):
        return HostfileProblem("slots", str(gpus.get()), gpus.origins[0], _first(source, {host: slots}), len(slots))
    return None


def _not_there(flag: Flag, source: SourceFile, hosts: Hosts) -> HostfileProblem | None:
    """``--include`` or ``--exclude`` names a host or a slot that the file does not have: DeepSpeed refuses it."""
    for host, _, numbers in _chosen(flag):
        if flag.value is None or not re.fullmatch(r"[\w.-]+", host):
            return None
        if host not in hosts:
            return HostfileProblem("host", host, flag.value.location, _first(source, hosts), len(hosts))
        for slot in numbers:
            if slot not in hosts[host]:
                there = _first(source, {host: hosts[host]})
                return HostfileProblem("slot", f"{host}:{slot}", flag.value.location, there, len(hosts[host]))
    return None


def _chosen(flag: Flag) -> Iterator[tuple[str, str, list[int]]]:
    """The hosts of ``--include`` or ``--exclude``, each with the text of its slots, and the numbers in it."""
    for part in flag.value.text.split("@") if flag.value is not None and flag.value.text is not None else ():
        host, _, slots = part.partition(":")
        yield host, slots, [int(s) for s in slots.split(",")] if re.fullmatch(r"\d+(,\d+)*", slots) else []


def _first(source: SourceFile, hosts: Hosts) -> Location | None:
    return next(iter(_places(source, hosts)), None)


def _problem(source: SourceFile, text: str, named: Location) -> HostfileProblem | None:
    seen: dict[str, Location] = {}
    for line, place in host_lines(source, _COMMENT):
        match = _LINE.match(line)
        if match is None:
            return HostfileProblem("line", line[:80], place)
        if match[1] in seen:
            return HostfileProblem("twice", match[1], place, seen[match[1]])
        seen[match[1]] = place
    return None if seen else HostfileProblem("empty", text, named)


def hostfile_counts(command: LaunchCommand, files: Files) -> World | None:
    """The hosts and their processes, as ``deepspeed.launcher.runner`` takes them from its hostfile.

    ``None`` when the command names no hostfile of this project.
    """
    if command.launcher in LAUNCHERS:
        return mpi_counts(command, files)
    if command.launcher != "deepspeed":
        return None
    flag = command.launcher_flag("-H", "--hostfile")
    if flag is None and files.workspace.is_start and files.workspace.is_file(_DEFAULT):
        source = files.workspace.read(_DEFAULT)
        return _counted(command, source, ()) if source is not None else None
    if flag is None or flag.value is None or not flag.value.text:
        return None
    path = files.find_at_start(flag.value.text)
    source = files.workspace.read(path) if path is not None else None
    text, raw = flag.value.text, flag.value.raw
    if source is None or is_written(files, text, raw) or is_mentioned(files, text, raw):
        return None
    return _counted(command, source, (flag.location.labelled(f"--hostfile {flag.value.text}"),))


def _counted(command: LaunchCommand, source: SourceFile, named: tuple[Location, ...]) -> World | None:
    hosts = _hosts(source)
    chosen = _limited(command, _filtered(command, hosts)) if hosts is not None else None
    if not chosen:
        return None
    places = (*named, *_places(source, chosen))
    slots = [len(numbers) for numbers in chosen.values()]
    each = known(slots[0], *places) if len(set(slots)) == 1 else unknown("the hosts differ", *places)
    return World(known(len(chosen), *places), each, known(sum(slots), *places))


def _hosts(source: SourceFile) -> Hosts | None:
    """Host -> its slots; ``None`` when DeepSpeed would refuse the file."""
    hosts: Hosts = {}
    for line, _ in host_lines(source, _COMMENT):
        match = _LINE.match(line)
        if match is None or match[1] in hosts or len(match[2]) > 4:
            return None
        hosts[match[1]] = list(range(int(match[2])))
    return hosts or None


def _filtered(command: LaunchCommand, hosts: Hosts) -> Hosts | None:
    """``--include`` and ``--exclude``: ``worker-0@worker-1:0,2``."""
    include, exclude = command.launcher_flag("-i", "--include"), command.launcher_flag("-e", "--exclude")
    flag = include or exclude
    if flag is None:
        return hosts
    if flag.value is None or flag.value.text is None or (include and exclude):
        return None
    named: Hosts = {}
    for host, slots, numbers in _chosen(flag):
        if host in named:
            return None  # releases differ in what they make of it
        if host not in hosts or (slots and not numbers) or set(numbers) - set(hosts[host]):
            return None
        named[host] = list(dict.fromkeys(numbers)) or hosts[host]
    if include:
        return {host: named[host] for host in hosts if host in named}
    left = {host: [s for s in slots if s not in named.get(host, [])] for host, slots in hosts.items()}
    return {host: slots for host, slots in left.items() if slots}


def _limited(command: LaunchCommand, hosts: Hosts | None) -> Hosts | None:
    """``--num_nodes`` takes the first hosts, ``--num_gpus`` so many processes on each."""
    nodes, gpus = _number(command, "--num_nodes"), _number(command, "--num_gpus", "--num_accelerators")
    if hosts is None or nodes.is_unknown or gpus.is_unknown:
        return None
    chosen = _first_hosts(hosts, nodes).items()
    return {host: list(range(gpus.get())) if gpus.is_known else slots for host, slots in chosen}


def _first_hosts(hosts: Hosts, nodes: Fact[int]) -> Hosts:
    return dict(list(hosts.items())[: nodes.get_or(None)])


def _number(command: LaunchCommand, *names: str) -> Fact[int]:
    flag = command.launcher_flag(*names)
    if flag is None:
        return absent()
    text = flag.value.text if flag.value is not None else None
    is_number = text is not None and text.isdecimal() and 0 < int(text) < 100_000
    return known(int(text or 0), flag.location) if is_number else unknown("not a number")


def _places(source: SourceFile, hosts: Hosts) -> list[Location]:
    found = []
    for host, slots in hosts.items():
        match = re.search(rf"^[ \t]*({re.escape(host)}\s+slots=\d+)", source.text, re.MULTILINE)
        if match is not None:
            found.append(source.location(Span(*match.span(1)), f"{len(slots)} processes on {host}"))
    return found[:4]
