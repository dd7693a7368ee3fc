"""The hosts of an ``mpirun`` or ``horovodrun`` command, where its host file is in the project."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.launchers.base import World
from dslint.model.plan.appearing import is_mentioned, is_written
from dslint.model.plan.files import Files

LAUNCHERS = ("mpirun", "horovodrun")
_FLAGS = ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f")
# Other words about hosts, or about where processes go: then the file alone does not say it.
_OTHERS = (
    "-H", "--host", "-host", "-hosts", "--hosts", "--map_by", "-map_by", "-npernode", "--npernode", "-N", "-ppn",
    "--ppn", "-perhost", "--perhost",
)  # fmt: skip
# Open MPI and Horovod: ``node1 slots=8 max_slots=8``. MPICH and Intel MPI: ``node1:8``.
_SLOTS = re.compile(r"(?P<host>[\w.-]+)\s+slots\s*=\s*(?P<slots>[1-9]\d{0,3})(?:\s+max[_-]slots\s*=\s*\d+)?$")
_COLON = re.compile(r"(?P<host>[\w.-]+):(?P<slots>[1-9]\d{0,3})$")


def mpi_counts(command: LaunchCommand, files: Files) -> World | None:
    """Nodes and processes where the command fills every slot of its host file; ``None`` where nobody can tell.

    Where there are more slots than processes the mapping of the release decides which hosts are used. Without ``-np``
    Open MPI fills all slots, MPICH starts one process.
    """
    flag = command.launcher_flag(*_FLAGS)
    if flag is None or flag.value is None or not flag.value.text or command.launcher_flag(*_OTHERS) is not None:
        return None
    text, raw = flag.value.text, flag.value.raw
    path = files.find_at_start(text)
    source = files.workspace.read(path) if path is not None else None
    if source is None or is_written(files, text, raw) or is_mentioned(files, text, raw):
        return None
    found = _read(source, _SLOTS)
    by_slots = found is not None
    found = found or _read(source, _COLON)
    total: Fact[int] = command.world_size
    is_full = found is not None and total.get_or(0) == sum(slots for slots, _ in found)
    if not found or not (is_full or (total.is_absent and by_slots and command.launcher == "mpirun")):
        return None
    places = (flag.location.labelled(f"{flag.name} {text}"), *(place for _, place in found[:4]))
    counts = [slots for slots, _ in found]
    each = known(counts[0], *places) if len(set(counts)) == 1 else unknown("the hosts differ", *places)
    return World(known(len(counts), *places), each, total if total.is_known else known(sum(counts), *places))


def _read(source: SourceFile, form: re.Pattern[str]) -> list[tuple[int, Location]] | None:
    """The slots of each host with their line; ``None`` unless every line has this form and no host comes twice."""
    hosts: dict[str, tuple[int, Location]] = {}
    for line, place in host_lines(source):
        match = form.match(line)
        if match is None or match["host"] in hosts:
            return None
        label = f"{match['slots']} processes on {match['host']}"
        hosts[match["host"]] = (int(match["slots"]), place.labelled(label))
    return list(hosts.values()) or None


def host_lines(source: SourceFile, comment: str = "#.*") -> Iterator[tuple[str, Location]]:
    """The lines of a host file that name a host, without blanks around them, and where they stand.

    ``comment`` is a pattern: DeepSpeed knows comments at the begin of a line only (``^\\s*#.*``).
    """
    at = 0
    for whole in source.text.splitlines(keepends=True):
        body = re.sub(comment, "", whole)
        start = at + len(body) - len(body.lstrip())
        at += len(whole)
        line = body.strip()
        if line:
            yield line, source.location(Span(start, start + len(line)))
