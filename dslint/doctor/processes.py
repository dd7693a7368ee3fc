"""Who runs on this machine and holds a file open, read from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dslint.doctor.machine import Machine

# Programs that hide their open files from everybody and never build anything.
_NEVER_BUILD = frozenset(
    {"(sd-pam)", "systemd", "sshd", "sshd-session", "ssh-agent", "gpg-agent", "sudo", "su", "login"}
)


@dataclass(frozen=True)
class Process:
    """A process: ``name`` as the kernel shortens it (15 bytes), ``uids`` real to file-system, ``parent`` its parent."""

    pid: int
    name: str
    uids: frozenset[int]
    parent: int
    folder: Path

    @property
    def cwd(self) -> str | None:
        """Its working directory, None when this user may not see it."""
        try:
            return os.readlink(self.folder / "cwd")
        except OSError:
            return None

    def open_files(self) -> Iterator[str]:
        """What its file descriptors point to, as far as this user may see it: paths, ``socket:[4711]``."""
        place = self.folder / "fd"
        try:
            entries = os.listdir(place)
        except OSError:
            return
        for entry in entries:
            # A descriptor can be closed meanwhile; that of this very listing always is.
            with suppress(OSError):
                yield os.readlink(place / entry)

    def holds(self, device: int, inode: int, name: str) -> bool | None:
        """Whether it has a file of this identity and base name open; None when this user may not see it."""
        place = self.folder / "fd"
        try:
            entries = os.listdir(place)
        except (FileNotFoundError, ProcessLookupError):
            return False  # it ended meanwhile
        except OSError:
            return None
        for entry in entries:
            # Only a file of that name is asked for its identity: stat on a dead network mount would not return.
            with suppress(OSError):
                if os.path.basename(os.readlink(place / entry)) == name:
                    found = os.stat(place / entry)
                    if (found.st_dev, found.st_ino) == (device, inode):
                        return True
        return False

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def processes(machine: Machine) -> Iterator[Process]:
    """Every process that this user can see."""
    try:
        entries = os.listdir(machine.proc)
    except OSError:
        return
    for entry in entries:
        if entry.isdecimal():
            found = process(machine, int(entry))
            if found:
                yield found


def process(machine: Machine, pid: int) -> Process | None:
    """One process, None when it is gone."""
    folder = machine.proc / str(pid)
    status = machine.read(folder / "status")
    if not status:
        return None
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    uids = frozenset(int(part) for part in fields.get("Uid", "").split() if part.isdecimal())
    parent = fields.get("PPid", "").strip()
    return Process(pid, fields.get("Name", "").strip(), uids, int(parent) if parent.isdecimal() else 0, folder)


def ancestors(machine: Machine, pid: int) -> list[Process]:
    """A process, its parent, and so on."""
    line: list[Process] = []
    while pid > 0 and len(line) < 100:
        found = process(machine, pid)
        if found is None:
            break
        line.append(found)
        pid = found.parent
    return line


@dataclass(frozen=True)
class Holders:
    """Who has a file open; ``hidden`` are processes that could have it and cannot be looked into."""

    holding: tuple[Process, ...]
    hidden: tuple[Process, ...]
    seen: int


def holders(machine: Machine, path: Path, owner: int, device: int, inode: int) -> Holders:
    """Look through the open files of all processes. Only processes of ``owner`` can have created the file."""
    holding: list[Process] = []
    hidden: list[Process] = []
    seen = 0
    for found in processes(machine):
        seen += 1
        answer = found.holds(device, inode, path.name)
        if answer:
            holding.append(found)
        elif answer is None and owner in found.uids and found.name not in _NEVER_BUILD:
            hidden.append(found)
    return Holders(tuple(holding), tuple(hidden), seen)
