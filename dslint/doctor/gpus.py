"""What ``nvidia-smi`` says about the GPUs. Nothing is set and no CUDA context is made."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from dslint.doctor.machine import Machine, Ran

# A driver that initialises many GPUs without persistence mode takes this long.
SECONDS = 20.0
_FIELDS = ("index", "name", "memory.total", "driver_version")
# Asked one by one: a driver that does not know a field refuses the whole query.
_NEWER_FIELDS = ("ecc.errors.uncorrected.volatile.total", "mig.mode.current", "compute_cap")


class Gpu(NamedTuple):
    """A GPU. ``ecc_errors`` is None where the board does not count them; ``capability`` is empty when not known."""

    number: int
    name: str
    memory: str
    driver: str
    ecc_errors: int | None
    mig: bool
    capability: str


class Gpus(NamedTuple):
    """The GPUs, or in ``trouble`` why they are not known; ``present`` says whether there is a driver at all."""

    gpus: tuple[Gpu, ...]
    trouble: str = ""
    present: bool = True


def gpus(machine: Machine) -> Gpus:
    """Ask ``nvidia-smi`` for the GPUs."""
    if machine.which("nvidia-smi") is None:
        loaded = os.path.exists(machine.proc / "driver/nvidia/version")
        return Gpus((), "the driver is loaded but nvidia-smi is not on PATH" if loaded else "no nvidia-smi", loaded)
    ran = _query(machine, ",".join(_FIELDS))
    if not ran.good:
        return Gpus((), _trouble(ran))
    errors, modes, capabilities = (_column(machine, field) for field in _NEWER_FIELDS)
    found = []
    for line in ran.out.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_FIELDS) and cells[0].isdecimal():
            number, name, memory, driver = cells
            count = errors.get(number, "")
            found.append(
                Gpu(int(number), name, memory, driver, int(count) if count.isdecimal() else None,
                    modes.get(number) == "Enabled", capabilities.get(number, ""))
            )  # fmt: skip
    return Gpus(tuple(found), "" if found else "nvidia-smi lists no GPU")


def driver_cuda(machine: Machine) -> tuple[int, int] | None:
    """The newest CUDA release that the driver runs, from the head of the table that ``nvidia-smi`` prints."""
    ran = machine.run("nvidia-smi", seconds=SECONDS)
    match = re.search(r"CUDA Version\s*:\s*(\d+)\.(\d+)", ran.out) if ran.good else None
    return (int(match[1]), int(match[2])) if match else None


def topology(machine: Machine) -> dict[str, int]:
    """How many pairs of GPUs each kind of link joins (``NV12``, ``PIX``, ``SYS`` ...), from ``nvidia-smi topo -m``."""
    ran = machine.run("nvidia-smi", "topo", "-m", seconds=SECONDS)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.out) if ran.good else ""
    rows = [cells for cells in map(str.split, plain.splitlines()) if cells and re.fullmatch(r"GPU\d+", cells[0])]
    rows = [cells[1:] for cells in rows if "X" in cells]  # not the header
    counts: dict[str, int] = {}
    # A row has a cell for each GPU, then those of other devices; above the diagonal each pair stands once.
    for own, cells in enumerate(rows):
        for link in cells[own + 1 : len(rows)]:
            counts[link] = counts.get(link, 0) + 1
    return counts


def _column(machine: Machine, field: str) -> dict[str, str]:
    ran = _query(machine, f"index,{field}")
    rows = [line.split(",", 1) for line in ran.out.splitlines()] if ran.good else []
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}


def _query(machine: Machine, fields: str) -> Ran:
    return machine.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", seconds=SECONDS)


def _trouble(ran: Ran) -> str:
    return ran.trouble or (ran.out or ran.err).strip().partition("\n")[0] or f"nvidia-smi: exit status {ran.code}"
