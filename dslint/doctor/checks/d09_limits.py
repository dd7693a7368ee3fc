"""Shared memory, limits of the process and free disk space.

**What.** The size of `/dev/shm`, open files (`ulimit -n`), locked memory (`ulimit -l`, where there is InfiniBand), free
space and inodes of the temporary folder and of the folder where extensions are built.

**Why it hurts.** DataLoader workers and NCCL hand data over in `/dev/shm`; the 64 MiB of a container end in "Bus error"
of one rank, and the others wait for it. Full disks kill builds half way, which leaves a lock (D1).

**How it is known.** `statvfs`, `/proc/self/limits`, `/sys/class/infiniband`.

**Repair.** `docker run --shm-size=16g` or `--ipc=host`; `ulimit`; a cache folder on another disk.

**Evidence.** https://github.com/pytorch/pytorch/issues/5040 (bus error with little shared memory); NCCL documentation,
troubleshooting (shared memory).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dslint.doctor.extensions import root_in_use
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.words import size

META = CheckMeta("D9", "limits", "Shared memory, limits of the process and free disk space")

_LEAST_SHARED = 1 << 30
# The object files and the library of one extension take some ten MiB, the temporary files of nvcc more.
_LEAST_DISK = 1 << 30
_EMPTY_DISK = 64 << 20
_LEAST_FILES = 1024


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each limit that is too low, one in all when none is."""
    good: list[str] = []
    outcomes = [*_shared_memory(machine, good), *_process(machine, good), *_disks(machine, good)]
    return outcomes or [ok(", ".join(good))]


def _shared_memory(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    disk = machine.disk(str(machine.system / "dev/shm"))
    if disk is None:
        yield unknown("/dev/shm cannot be looked at", "NCCL and DataLoader workers need it")
    elif disk.total < _LEAST_SHARED:
        reason = "DataLoader workers and NCCL end in `Bus error` or `No space left on device`"
        repair = "mount -o remount,size=16g /dev/shm  # a container: docker run --shm-size=16g"
        yield warning(f"/dev/shm has {size(disk.total)}", reason, repair)
    elif disk.free < _LEAST_DISK // 4:
        reason = "left-over segments of killed jobs fill it; the next job ends in `Bus error`"
        yield warning(f"/dev/shm has {size(disk.free)} free of {size(disk.total)}", reason, "ls -l /dev/shm")
    else:
        good.append(f"/dev/shm {size(disk.total)}")


def _process(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    text = machine.read(machine.proc / "self/limits")
    if text is None:
        yield unknown("limits of the process not known", "/proc/self/limits cannot be read")
        return
    files = _soft_limit(text, "Max open files")
    if files is not None and files < _LEAST_FILES:
        yield warning(
            f"open files are limited to {files}", "ranks with workers end in `Too many open files`", "ulimit -n 65536"
        )
    else:
        good.append(f"open files {'unlimited' if files is None else files}")
    locked = _soft_limit(text, "Max locked memory")
    if locked is not None and _has_infiniband(machine):
        reason = "InfiniBand registers the memory it sends: `ibv_reg_mr failed: Cannot allocate memory`"
        yield warning(f"locked memory is limited to {size(locked)}", reason, "ulimit -l unlimited")


def _soft_limit(text: str, name: str) -> int | None:
    """A soft limit of ``/proc/self/limits``, None for unlimited."""
    match = re.search(rf"^{name}\s+(\d+|unlimited)", text, re.MULTILINE)
    return int(match[1]) if match and match[1] != "unlimited" else None


def _has_infiniband(machine: Machine) -> bool:
    try:
        return bool(os.listdir(machine.system / "sys/class/infiniband"))
    except OSError:
        return False


def _disks(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    temporary = machine.folder("TMPDIR", Path("/tmp"))
    extensions = root_in_use(machine).path
    for what, path, variable in (
        ("temporary folder", temporary, "TMPDIR"),
        ("extensions folder", extensions, "TORCH_EXTENSIONS_DIR"),
    ):
        place = _existing(path)
        disk = machine.disk(str(place))
        if disk is None:
            yield unknown(f"{what} {path} cannot be looked at", "builds and caches need it")
        elif disk.free < _LEAST_DISK or (disk.files is not None and disk.files < 1000):
            left = f"{size(disk.free)} free" if disk.free < _LEAST_DISK else f"{disk.files} free inodes"
            say = error if disk.free < _EMPTY_DISK or disk.files == 0 else warning
            repair = f"export {variable}=<a folder on another disk>; du -sh {shlex.quote(str(place))}"
            yield say(f"{what} {path}: {left}", "a build that runs out of space fails and can leave a lock", repair)
        else:
            good.append(f"{what} {path} {size(disk.free)} free")


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next((place for place in (path, *path.parents) if os.path.exists(place)), path)
