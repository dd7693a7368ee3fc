"""Interfaces and host names that the ranks would use to meet.

**What.** `NCCL_SOCKET_IFNAME` and `GLOO_SOCKET_IFNAME` against the interfaces of this machine; the host name and
`MASTER_ADDR` against the resolver.

**Why it hurts.** NCCL with a name that matches nothing ends with "no socket interface found"; gloo with "Unable to find
address for". Where the host name resolves to 127.x, as Debian sets it up, or gloo is bound to `lo`, the ranks of this
machine announce an address that no other machine can reach: "Connection refused" or a wait until the time-out.

**How it is known.** `/proc/net/dev`; the resolver, with a time limit. NCCL reads a list of prefixes, `=` makes them
exact names, `^` turns the list round; gloo reads a list of exact names. One machine alone may use 127.x: that is a
finding only when other hosts are named (`--host`, `--hostfile`, `MASTER_ADDR`, a Slurm job of several nodes).

**Repair.** Name an interface that exists, or unset the variable.

**Evidence.** https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html. Measured with two hosts:
`GLOO_SOCKET_IFNAME=lo` ends with "connectFullMesh failed ... Connection refused, remote=[127.0.0.1]" after 11.6 s.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.doctor.launch import several_machines
from dslint.doctor.machine import Machine
from dslint.doctor.outcome import CheckMeta, Outcome, error, ok, unknown, warning
from dslint.doctor.words import listed

META = CheckMeta("D7", "network-interface", "Interfaces and host names that the ranks would use to meet")

_SLOW_SECONDS = 2.0
_GLOO = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def check(machine: Machine) -> list[Outcome]:
    """One outcome for each name that does not fit, one in all when they do."""
    several = several_machines(machine)
    good: list[str] = []
    outcomes = [*_interfaces(machine, several, good), *_hostname(machine, several, good), *_master(machine, good)]
    return outcomes or [ok(", ".join(good))]


def _interfaces(machine: Machine, several: bool, good: list[str]) -> Iterator[Outcome]:
    stated = {name: machine.variable(name) for name in ("NCCL_SOCKET_IFNAME", *_GLOO) if machine.variable(name)}
    table = machine.read(machine.proc / "net/dev")
    if table is None:
        yield unknown("interfaces not compared", "/proc/net/dev cannot be read")
        return
    present = sorted(line.partition(":")[0].strip() for line in table.splitlines() if ":" in line)
    for variable, value in stated.items():
        chosen, missing = (_gloo if variable in _GLOO else _nccl)(value, present)
        here = f"this machine has {listed(present, 8)}"
        if missing or not chosen:
            what = f"names {listed(missing)}" if missing else "matches no interface"
            yield error(f"{variable}={value} {what}", f"{here}: ranks cannot connect", f"unset {variable}")
        elif chosen == ["lo"] and several:
            reason = f"{here}; other machines cannot reach 127.0.0.1: connection refused"
            yield error(f"{variable}={value} is the loopback interface", reason, f"unset {variable}")
        else:
            good.append(f"{variable}={value} is {listed(chosen)}")
    if not stated:
        good.append(f"interfaces {listed(present, 8)}")


def _nccl(value: str, present: list[str]) -> tuple[list[str], list[str]]:
    """The interfaces that NCCL would use, and none missing: a prefix may match nothing as long as another does."""
    exclude = value.startswith("^")
    rest = value.removeprefix("^")
    exact = rest.startswith("=")
    # An entry may carry a port: eth0:5000.
    names = [name.partition(":")[0] for name in rest.removeprefix("=").split(",") if name]
    matches = [item for item in present if any(item == n if exact else item.startswith(n) for n in names)]
    return [item for item in present if item not in matches] if exclude else matches, []


def _gloo(value: str, present: list[str]) -> tuple[list[str], list[str]]:
    names = [name for name in value.split(",") if name]
    return [name for name in names if name in present], [name for name in names if name not in present]


def _hostname(machine: Machine, several: bool, good: list[str]) -> Iterator[Outcome]:
    name = machine.hostname()
    if not name:
        yield unknown("host name not known", "/proc/sys/kernel/hostname cannot be read")
        return
    found = machine.look_up(name)
    if found.trouble and not found.addresses:
        reason = f"{found.trouble}; gloo falls back to 127.0.0.1, which other machines cannot reach"
        yield warning(f"the host name `{name}` does not resolve", reason, f"echo '<address> {name}' >> /etc/hosts")
        return
    if found.seconds > _SLOW_SECONDS:
        reason = f"the lookup took {found.seconds:.1f} s, and every rank does it when it starts"
        yield warning(f"the host name `{name}` resolves slowly", reason)
    loopback = [address for address in found.addresses if address.startswith("127.") or address == "::1"]
    if several and loopback and len(loopback) == len(found.addresses):
        reason = "ranks here announce an address that no other machine can reach"
        repair = "export GLOO_SOCKET_IFNAME=<interface> NCCL_SOCKET_IFNAME=<interface>"
        yield error(f"the host name `{name}` resolves to {listed(loopback)}", reason, repair)
        return
    good.append(f"`{name}` is {listed(list(found.addresses))}" + (" (enough for one machine)" if loopback else ""))


def _master(machine: Machine, good: list[str]) -> Iterator[Outcome]:
    master = machine.variable("MASTER_ADDR")
    if not master:
        return
    found = machine.look_up(master)
    if found.addresses:
        good.append(f"MASTER_ADDR={master} is {listed(list(found.addresses))}")
    else:
        reason = f"{found.trouble}: the ranks of this machine cannot meet the others"
        yield error(f"MASTER_ADDR={master} does not resolve", reason)
