"""A whole machine in a temporary folder: /proc, /sys, home, programs and a Python environment, for the doctor."""

from __future__ import annotations

import os
import struct
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from dslint.doctor.environment import Python
from dslint.doctor.locks import Verdict, judge
from dslint.doctor.machine import Disk, Machine
from dslint.doctor.outcome import Outcome, Status

FIRST_NAMESPACE = "pid:[4026531836]"
NOW = 1_800_000_000.0
GIB = 1 << 30


class FakeMachine:
    """Builds the folder, then makes the :class:`Machine` that looks at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.system = folder / "system"
        self.home = folder / "home"
        self.site = folder / "env" / "lib" / "site-packages"
        self.bin = folder / "bin"
        for place in (self.home, self.site, self.bin, self.system / "dev/shm", self.system / "sys/class"):
            place.mkdir(parents=True)
        self.environ: dict[str, str] = {"PATH": str(self.bin), "HOME": str(self.home), "TMPDIR": str(folder)}
        self.disks: dict[str, Disk] = {}
        self.names: dict[str, tuple[str, ...]] = {"node1": ("10.0.0.1",)}
        self.proc("mounts", f"/dev/vda / ext4 rw 0 0\n/dev/vdb {folder} ext4 rw 0 0\n")
        self.proc("sys/kernel/hostname", "node1\n")
        self.proc("net/tcp", "  sl  local_address rem_address   st\n")
        self.proc(
            "net/dev",
            "Inter-|   Receive\n face |bytes\n    lo: 1 2\n  eth0: 1 2\ndocker0: 0 0\n".replace("face |", "face "),
        )
        self.proc("self/limits", "Limit  Soft Limit\nMax open files            65536    65536    files\n"
                                 "Max locked memory         8388608   8388608   bytes\n")  # fmt: skip
        self.proc("stat", f"cpu 1 2 3\nbtime {int(NOW) - 86400}\n")
        self.namespace(FIRST_NAMESPACE)
        self.process(1, "systemd", uid=0, parent=0)

    def proc(self, name: str, text: str) -> None:
        path = self.system / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def namespace(self, link: str) -> None:
        place = self.system / "proc/self/ns/pid"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(link)

    def process(
        self, pid: int, name: str, *, uid: int | None = None, parent: int = 1, files: tuple[Path | str, ...] = (),
        cwd: Path | None = None, command: tuple[str, ...] = (),
    ) -> Path:  # fmt: skip
        uid = os.getuid() if uid is None else uid
        folder = self.system / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text(f"Name:\t{name}\nState:\tS\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cmdline").write_text("\0".join(command))
        for number, path in enumerate(files, 3):
            (folder / "fd" / str(number)).symlink_to(path)
        if cwd:
            (folder / "cwd").symlink_to(cwd)
        return folder

    def program(self, name: str, script: str) -> None:
        """A program on PATH: a shell script that gets the arguments."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def package(self, name: str, version: str, *requirements: str) -> None:
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Requires-Dist: {line}\n" for line in requirements]
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{''.join(lines)}\n")

    def torch(self, version: str = "2.13.0+cpu", cuda: str | None = None, hip: str | None = None) -> Path:
        folder = self.site / "torch"
        (folder / "include").mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "version.py").write_text(
            f"from typing import Optional\n__version__ = {version!r}\ndebug = False\n"
            f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = {hip!r}\n"
        )
        self.package("torch", version)
        return folder

    def mount(self, kind: str, point: Path | str | None = None) -> None:
        """Mount another kind of file system over the machine's folder, or elsewhere."""
        place = self.system / "proc/mounts"
        place.write_text(place.read_text() + f"server:/export {point or self.folder} {kind} rw 0 0\n")

    def build(self, op: str = "fused_adam", tag: str | None = "py311_cpu", root: Path | None = None) -> Path:
        base = root or self.home / ".cache/torch_extensions"
        folder = base / tag / op if tag else base / op
        folder.mkdir(parents=True)
        return folder

    def machine(self, **options: Any) -> Machine:
        python = Python(self.folder / "env/bin/python", [str(self.site)], (3, 11))
        given: dict[str, Any] = {
            "system": self.system, "environ": self.environ, "home": self.home, "cwd": self.folder, "now": lambda: NOW,
            "disk": lambda path: self.disks.get(path, Disk(100 * GIB, 50 * GIB, 1_000_000)), "lookup": self._lookup,
        }  # fmt: skip
        return Machine(python, **{**given, **options})

    def _lookup(self, name: str) -> tuple[str, ...]:
        if name not in self.names:
            raise OSError(-2, "Name or service not known")
        return self.names[name]


def needs_provable_locks(folder: Path) -> None:
    """Skip on a machine (a container whose temporary folder is shared, say) where the doctor rightly proves nothing."""
    lock = folder / "lock"
    lock.touch()
    old = time.time() - 3600
    os.utime(lock, (old, old))
    judgement = judge(Machine(Python.current()), lock)
    lock.unlink()
    if judgement.verdict is not Verdict.STALE:
        pytest.skip(f"no lock below {folder} can be proven stale: {judgement.why}")


def lock_in(folder: Path, age: float = 3600) -> Path:
    """A lock as torch leaves it."""
    lock = folder / "lock"
    lock.touch()
    os.utime(lock, (NOW - age, NOW - age))
    return lock


def real_library() -> bytes:
    """The bytes of a shared library of this machine."""
    import _ctypes

    place = getattr(_ctypes, "__file__", None) or sysconfig.get_config_var("LDLIBRARY")
    return Path(place).read_bytes()


def library_for(machine: int) -> bytes:
    """A real library whose header names another processor (``e_machine``)."""
    data = bytearray(real_library())
    data[18:20] = struct.pack("<H" if sys.byteorder == "little" else ">H", machine)
    return bytes(data)


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status.value for outcome in outcomes]


def only(outcomes: list[Outcome], status: Status | str) -> Outcome:
    """The single outcome, which must have this status."""
    assert statuses(outcomes) == [Status(status).value], outcomes
    return outcomes[0]
