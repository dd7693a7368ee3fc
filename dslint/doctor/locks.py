"""Whether the ``lock`` of an extension build is in use or stale, and its removal.

``torch.utils.file_baton.FileBaton`` creates the file with ``O_CREAT | O_EXCL``, empty, keeps it open while it builds,
and removes it at the end. Everybody else waits until it is gone, with no time limit. So a lock that no process holds
open will never go away by itself, provided that every process that could hold it can be seen from here.
"""

from __future__ import annotations

import os
import stat
import time
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from dslint.doctor.filesystems import LOCAL, is_network
from dslint.doctor.machine import Machine, Mount, unescape
from dslint.doctor.outcome import StaleLock
from dslint.doctor.processes import Holders, ancestors, holders, processes

# proc_ns.h: the inode number of the first process namespace, the one that sees all processes.
_FIRST_NAMESPACE = "pid:[4026531836]"
# A lock this young is not judged; the margin of the clock when its age is compared with the start of the machine.
_YOUNG_SECONDS = 10
_BOOT_MARGIN = 600
_RELEASE_SECONDS = 0.1
# Somebody who looks at the folder, not a build.
_LOOKERS = frozenset(
    {"bash", "zsh", "fish", "sh", "dash", "ksh", "csh", "tcsh", "vim", "vi", "nvim", "nano", "emacs", "less", "more",
     "tail", "watch", "tmux: server", "tmux: client", "screen", "mc", "top", "htop"}
)  # fmt: skip


class Verdict(Enum):
    """What is known about a lock."""

    GONE = "gone"
    IN_USE = "in use"
    STALE = "stale"
    UNKNOWN = "unknown"


class Judgement(NamedTuple):
    """A verdict with its reason; ``age`` in seconds; ``lock`` identifies the file that was judged."""

    verdict: Verdict
    why: str
    age: float = 0.0
    lock: StaleLock | None = None


def judge(machine: Machine, path: Path) -> Judgement:
    """Look at a lock now. Who holds it is asked before anything else: a build that is seen settles it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Judgement(Verdict.GONE, "it does not exist")
    except OSError as problem:
        return Judgement(Verdict.UNKNOWN, f"it cannot be looked at: {problem.strerror}")
    age = machine.now() - found.st_mtime
    if not stat.S_ISREG(found.st_mode) or found.st_size:
        return Judgement(Verdict.UNKNOWN, "it is not the empty file that torch makes", age)
    seen = holders(machine, path, found.st_uid, found.st_dev, found.st_ino)
    if seen.holding:
        return Judgement(Verdict.IN_USE, f"{seen.holding[0]} holds it open and builds", age)
    worker = _worker(machine, path.parent)
    if worker:
        return Judgement(Verdict.IN_USE, f"{worker} still works in that folder", age)
    doubt = _doubt_about_place(machine, path) if seen.seen else "no process can be seen in /proc"
    # The time of the last change of its inode cannot be set back.
    if not doubt and not _older_than_boot(machine, max(found.st_mtime, found.st_ctime)):
        doubt = _doubt_about_processes(machine, found.st_uid, seen, age)
    if doubt:
        return Judgement(Verdict.UNKNOWN, doubt, age)
    lock = StaleLock(path, found.st_dev, found.st_ino, found.st_mtime_ns)
    return Judgement(Verdict.STALE, "no process holds it open and no compiler works in that folder", age, lock)


def _doubt_about_place(machine: Machine, path: Path) -> str:
    """Why a process that cannot be seen from here could hold the file; empty when none can."""
    mount = machine.mount_of(path)
    if mount is None:
        return "/proc/mounts does not say which file system holds it"
    if is_network(mount.kind):
        return f"it lies on {mount.kind} ({mount.point}): a process of another machine may hold it"
    if mount.kind not in LOCAL:
        return f"it lies on {mount.kind} ({mount.point}), which other machines may hold as well"
    if _is_exported(machine, path):
        return "this machine exports the folder by NFS: a process of another machine may hold it"
    if not _sees_all_processes(machine) and not _is_private(mount):
        return f"this is a container and {mount.point} is shared with its host: a process outside may hold it"
    return ""


def _doubt_about_processes(machine: Machine, owner: int, seen: Holders, age: float) -> str:
    """Why a process of this machine could hold the file unseen; empty when none can."""
    if owner != machine.uid and machine.uid != 0:
        return "it belongs to another user, whose open files only that user and root can see"
    if seen.hidden:
        return f"{seen.hidden[0]} does not show its open files"
    if 0 <= age < _YOUNG_SECONDS:
        return f"it is only {age:.0f} s old; look again in a moment"
    return ""


def _sees_all_processes(machine: Machine) -> bool:
    try:
        return os.readlink(machine.proc / "self" / "ns" / "pid") == _FIRST_NAMESPACE
    except OSError:
        return False


def _is_private(mount: Mount) -> bool:
    # The writable layer of a container: nobody else works there.
    return mount.kind == "overlay" and mount.point == "/"


def _is_exported(machine: Machine, path: Path) -> bool:
    """Whether the kernel's NFS server hands the folder out; what its clients hold open no process here shows."""
    if all(found.name != "nfsd" for found in processes(machine)):
        return False
    table = machine.read(machine.system / "var/lib/nfs/etab")
    if table is None:
        return True
    real = os.path.realpath(path)
    exports = [line.split()[0].rstrip("/") + "/" for line in table.splitlines() if line.strip()]
    return any(real.startswith(unescape(export)) for export in exports)


def _older_than_boot(machine: Machine, modified: float) -> bool:
    """Whether no process of this start of the machine can have made the file (which is not on a network)."""
    if not _sees_all_processes(machine):
        return False  # a container can show a start of its own
    for line in (machine.read(machine.proc / "stat") or "").splitlines():
        word, _, value = line.partition(" ")
        if word == "btime" and value.strip().isdecimal():
            return modified + _BOOT_MARGIN < int(value)
    return False


def _worker(machine: Machine, folder: Path) -> str:
    """A process whose working directory is the build's: ninja and compilers outlive the process that began."""
    wanted = os.path.realpath(folder)
    own = {found.pid for found in ancestors(machine, os.getpid())}
    for found in processes(machine):
        if found.pid not in own and found.name not in _LOOKERS and found.cwd == wanted:
            return str(found)
    return ""


def remove(machine: Machine, lock: StaleLock) -> str:
    """Remove a lock that was judged stale, after judging it again; returns why not, empty when it is gone.

    Only this file is removed, and only while it is the same file and still stale.
    """
    # A build that ends closes the file a moment before it removes it.
    time.sleep(_RELEASE_SECONDS)
    again = judge(machine, lock.path)
    if again.verdict is Verdict.GONE:
        return ""
    if again.verdict is not Verdict.STALE:
        return again.why
    if again.lock != lock:
        return "it is another file now: a new build has begun"
    try:
        found = os.lstat(lock.path)
        if (found.st_dev, found.st_ino, found.st_mtime_ns) != (lock.device, lock.inode, lock.modified):
            return "it is another file now: a new build has begun"
        os.unlink(lock.path)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return f"it cannot be removed: {problem.strerror}"
    return ""
