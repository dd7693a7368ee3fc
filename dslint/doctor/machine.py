"""The only way from the checks to the machine: files, environment, clock, programs, name lookup.

A test hands in another ``system`` folder (with ``proc``, ``sys`` and ``dev`` in it), environment, home and clock, and
the checks see a whole other machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dslint.doctor.environment import Python

T = TypeVar("T")
LOOKUP_SECONDS = 5.0
PROGRAM_SECONDS = 10.0
# Nothing that a check reads is larger; a file that is must not fill the memory.
_MOST_BYTES = 4_000_000


class Ran(NamedTuple):
    """A program that was run: exit status and output, or in ``trouble`` why there are none."""

    code: int | None
    out: str = ""
    err: str = ""
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Whether it ran and reported success."""
        return self.code == 0


class Disk(NamedTuple):
    """A file system, in bytes; ``files`` is the number of free inodes, None where the file system has no such limit."""

    total: int
    free: int
    files: int | None


class Lookup(NamedTuple):
    """The addresses of a host name, or in ``trouble`` why there are none; ``seconds`` is what it took."""

    addresses: tuple[str, ...]
    seconds: float
    trouble: str = ""


class Mount(NamedTuple):
    """A line of ``/proc/mounts``."""

    source: str
    point: str
    kind: str


def _disk(path: str) -> Disk | None:
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return Disk(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize, stat.f_favail if stat.f_files else None)


def _addresses(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:  # a container's user without a home and without a name
        return Path("/")


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError:  # somebody removed it
        return Path("/")


class Machine:
    """One machine and one Python environment on it, with the hosts that the user named."""

    def __init__(
        self,
        python: Python,
        *,
        system: Path = Path("/"),
        environ: Mapping[str, str] | None = None,
        home: Path | None = None,
        cwd: Path | None = None,
        hosts: Sequence[str] = (),
        hostfile: Path | None = None,
        now: Callable[[], float] = time.time,
        disk: Callable[[str], Disk | None] = _disk,
        lookup: Callable[[str], tuple[str, ...]] = _addresses,
        uid: int | None = None,
    ) -> None:
        self.python = python
        self.system = system
        self.environ = os.environ if environ is None else environ
        self.home = home or _home(self.environ)
        self.cwd = cwd or _cwd()
        self.hosts = tuple(hosts)
        self.hostfile = hostfile
        self.now = now
        self.disk = disk
        self.uid = os.getuid() if uid is None else uid
        self._lookup = lookup
        self._answers: dict[tuple[str, ...], Any] = {}

    @property
    def proc(self) -> Path:
        """The ``/proc`` of the machine."""
        return self.system / "proc"

    def variable(self, name: str) -> str:
        """An environment variable without blanks at its ends, empty when it is not set."""
        return self.environ.get(name, "").strip()

    def folder(self, variable: str, default: Path) -> Path:
        """The folder that an environment variable names, else the default; ``~`` is the home of this machine."""
        stated = self.environ.get(variable, "")
        return self.expand(stated) if stated else default

    def expand(self, text: str) -> Path:
        """A path as a shell of this machine means it."""
        if text == "~" or text.startswith("~/"):
            return self.home / text[2:]
        return self.cwd / text

    def read(self, path: Path) -> str | None:
        """The text of a file, None when it cannot be read."""
        try:
            with path.open("rb") as stream:
                return stream.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None

    def which(self, name: str) -> str | None:
        """The program that a shell of this machine would start."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def run(self, *command: str, seconds: float = PROGRAM_SECONDS) -> Ran:
        """Run a program with a time limit; its answer is kept, so that two checks do not ask twice."""
        return self.once(command, lambda: self._start(command, seconds))

    def once(self, key: tuple[str, ...], ask: Callable[[], T]) -> T:
        """The answer to a question that is asked once in a run."""
        if key not in self._answers:
            self._answers[key] = ask()
        answer: T = self._answers[key]
        return answer

    def _start(self, command: tuple[str, ...], seconds: float) -> Ran:
        program = self.which(command[0])
        if program is None:
            return Ran(None, trouble=f"`{command[0]}` is not on PATH")
        environ = {**self.environ, "LC_ALL": "C"}
        try:
            child = subprocess.Popen(
                [program, *command[1:]], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            return Ran(None, trouble=f"`{command[0]}` cannot be started: {problem}")
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            return Ran(None, trouble=f"`{command[0]}` gave no answer in {seconds:g} s")
        return Ran(child.returncode, out, err)

    def look_up(self, name: str, seconds: float = LOOKUP_SECONDS) -> Lookup:
        """The addresses of a host name. The resolver has no time limit of its own, so it works in a thread."""
        answer: list[tuple[str, ...]] = []
        trouble: list[str] = []

        def ask() -> None:
            try:
                answer.append(self._lookup(name))
            except (OSError, UnicodeError) as problem:
                trouble.append(str(problem))

        begin = time.monotonic()
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(seconds)
        spent = time.monotonic() - begin
        if thread.is_alive():
            return Lookup((), spent, f"no answer in {seconds:g} s")
        return Lookup(answer[0] if answer else (), spent, trouble[0] if trouble else "")

    def hostname(self) -> str:
        """The host name, as the kernel has it."""
        return (self.read(self.proc / "sys/kernel/hostname") or "").strip()

    def mount_of(self, path: Path) -> Mount | None:
        """The mount that holds a path (which need not exist yet), None when ``/proc/mounts`` does not say."""
        real = os.path.realpath(path)
        best: Mount | None = None
        for line in (self.read(self.proc / "mounts") or "").splitlines():
            fields = line.split()
            if len(fields) < 3:
                continue
            point = unescape(fields[1])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            # A later line covers an earlier one with the same mount point.
            if inside and (best is None or len(point) >= len(best.point)):
                best = Mount(unescape(fields[0]), point, fields[2])
        return best


def _end(child: subprocess.Popen[str]) -> None:
    """End a program with all its children; one stuck in the kernel is left to the kernel."""
    try:
        os.killpg(child.pid, 9)
        child.communicate(timeout=1)
    except (OSError, subprocess.TimeoutExpired):
        pass


def unescape(text: str) -> str:
    """A path of ``/proc/mounts`` or of the table of NFS exports, where blanks and backslashes stand in octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text
