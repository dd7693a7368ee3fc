"""The port on which the ranks would meet.

**What.** `MASTER_PORT`, or 29500, which torchrun, accelerate and DeepSpeed take by default: in use, reserved, or no
port.

**Why it hurts.** The second job on a machine ends with "The server socket has failed to listen on any local network
address ... EADDRINUSE", or its ranks join the store of the first one and wait.

**How it is known.** Listening sockets in `/proc/net/tcp` and `/proc/net/tcp6`, and whose they are by `/proc/*/fd`. A
port that only rests in TIME_WAIT is free for the store, which sets SO_REUSEADDR.

**Repair.** Another port, or ending the process that was left over.

**Evidence.** https://github.com/meta-pytorch/torchtune/issues/1025; measured: EADDRINUSE on the second of two jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from string import hexdigits
from typing import NamedTuple

from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.processes import Process, ancestors, processes

META = CheckMeta("D10", "port-in-use", "The port on which the ranks would meet")

_DEFAULT_PORT = 29500
_LISTEN = "0A"


class _Socket(NamedTuple):
    port: int
    state: str
    inode: str


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each port."""
    sockets = list(_sockets(machine))
    if not os.path.exists(machine.proc / "net/tcp"):
        return [unknown("ports not known", "/proc/net/tcp cannot be read")]
    stated = machine.variable("MASTER_PORT")
    if not stated:
        return list(_port(machine, sockets, _DEFAULT_PORT, "the default port"))
    if not stated.isdecimal() or not 0 < int(stated) < 65536:
        reason = "a port is a whole number from 1 to 65535"
        return [error(f"MASTER_PORT={stated} is no port", reason, "export MASTER_PORT=29500")]
    return list(_port(machine, sockets, int(stated), f"MASTER_PORT={stated}"))


def _port(machine: Machine, sockets: list[_Socket], port: int, what: str) -> Iterator[Outcome]:
    listening = [found for found in sockets if found.port == port and found.state == _LISTEN]
    free = next(other for other in range(29501, 65536) if all(found.port != other for found in sockets))
    move = f"export MASTER_PORT={free}"
    if listening:
        holder = _holder(machine, {found.inode for found in listening})
        if holder and holder.pid in {process.pid for process in ancestors(machine, os.getpid())}:
            yield ok(f"{what} is held by this job ({holder})")
        elif holder and holder.parent == 1 and "python" in holder.name:
            reason = f"{holder} has lost its launcher: a rank that was left over from an earlier job"
            yield warning(f"{what} ({port}) is in use", reason, f"kill {holder.pid}  # or: {move}")
        else:
            whose = f"{holder} listens on it" if holder else "another user's process listens on it"
            yield warning(f"{what} ({port}) is in use", f"{whose}: a job here ends with EADDRINUSE or joins it", move)
    elif port < _first_free(machine) and machine.uid != 0:
        yield error(f"{what} is a reserved port", "only root may listen on it: Permission denied", move)
    else:
        yield ok(f"{what} ({port}) is free" if str(port) not in what else f"{what} is free")


def _first_free(machine: Machine) -> int:
    text = (machine.read(machine.proc / "sys/net/ipv4/ip_unprivileged_port_start") or "").strip()
    return int(text) if text.isdecimal() else 1024


def _sockets(machine: Machine) -> Iterator[_Socket]:
    for name in ("net/tcp", "net/tcp6"):
        for line in (machine.read(machine.proc / name) or "").splitlines()[1:]:
            cells = line.split()
            port = cells[1].rpartition(":")[2] if len(cells) > 9 else ""
            if len(port) == 4 and set(port) <= set(hexdigits):
                yield _Socket(int(port, 16), cells[3], cells[9])


def _holder(machine: Machine, inodes: set[str]) -> Process | None:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    return next((found for found in processes(machine) if not wanted.isdisjoint(found.open_files())), None)
