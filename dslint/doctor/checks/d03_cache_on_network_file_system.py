"""Build caches on a file system that several machines share.

**What.** The extensions root, `TRITON_CACHE_DIR` (default `~/.triton/cache`) and `TORCHINDUCTOR_CACHE_DIR` on NFS,
Lustre, GPFS, CIFS, 9p and the like.

**Why it hurts.** The ranks of all machines build into the same folder under one lock: one killed rank stops every
machine, and nobody can see whether the lock is still in use. Triton compiles many small files and is slow there or
fails in between.

**How it is known.** The mount that holds the folder, from `/proc/mounts`.

**Repair.** Put the cache on a local disk, one for each machine. A home folder on NFS is fine for data and models.

**Evidence.** https://github.com/deepspeedai/DeepSpeed/issues/5205; DeepSpeed itself warns about a Triton cache on NFS.
"""

from __future__ import annotations

from pathlib import Path

from dslint.doctor.extensions import root_in_use
from dslint.doctor.filesystems import is_network
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, ok, unknown, warning

META = CheckMeta("D3", "cache-on-network-file-system", "Build caches on a file system that several machines share")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each cache on a network file system, one in all when there is none."""
    outcomes = []
    kinds = []
    for variable, path in _caches(machine):
        mount = machine.mount_of(path)
        if mount is None:
            return [unknown("file systems of the caches", "/proc/mounts cannot be read")]
        kinds.append(f"{path} ({mount.kind})")
        if is_network(mount.kind):
            reason = "builds of all machines meet there under one lock, and a stale one cannot be proven stale"
            repair = f"export {variable}=/tmp/$USER-{variable.split('_')[0].lower()}"
            outcomes.append(warning(f"{path} lies on {mount.kind} ({mount.point})", reason, repair))
    return outcomes or [ok("caches are on local disks: " + ", ".join(kinds))]


def _caches(machine: Machine) -> list[tuple[str, Path]]:
    found = [
        ("TORCH_EXTENSIONS_DIR", root_in_use(machine).path),
        ("TRITON_CACHE_DIR", machine.folder("TRITON_CACHE_DIR", machine.home / ".triton" / "cache")),
    ]
    # By default this one lies in the temporary folder.
    if machine.variable("TORCHINDUCTOR_CACHE_DIR"):
        found.append(("TORCHINDUCTOR_CACHE_DIR", machine.folder("TORCHINDUCTOR_CACHE_DIR", machine.cwd)))
    return found
