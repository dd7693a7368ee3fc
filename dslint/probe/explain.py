"""The account of a stall: which collectives each rank issued, by torch's flight recorder, and which one is missing.

The recorder works for gloo on the CPU as well (states stay "scheduled" there, so counts and sequence numbers are
compared, not states). It is read from a side thread of the rank while its main thread waits.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dslint.probe.outcome import names

# The recorder writes the names of C++.
_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Byte": "uint8"}
ASK, ANSWER = "recorder.ask", "recorder.json"


def record(own: str) -> None:
    """In a rank: once somebody opens the pipe ``recorder.ask`` in its folder, write ``recorder.json``."""
    ask = os.path.join(own, ASK)
    os.mkfifo(ask, 0o600)

    def serve() -> None:
        with open(ask, "rb") as pipe:  # blocks without any work, which a watchdog would see
            pipe.read()
        c10d: Any = import_module("torch._C._distributed_c10d")
        text = c10d._dump_fr_trace_json(True, False)
        part = os.path.join(own, "recorder.part")
        with open(part, "wb" if isinstance(text, bytes) else "w") as file:
            file.write(text)
        os.replace(part, os.path.join(own, ANSWER))

    threading.Thread(target=serve, daemon=True).start()


def collect(folder: Path, ranks: Iterable[int], patience: float = 3.0) -> None:
    """In the supervisor: ask these ranks of an arm that stands still, and wait for the answers."""
    asked = [rank for rank in ranks if _ask(folder / str(rank) / ASK)]
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if all((folder / str(rank) / ANSWER).exists() for rank in asked):
            return
        time.sleep(0.05)


def _ask(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # the rank is dead, or never came so far
        return False
    return True


def account(folder: Path, world: int, stands: Mapping[int, str]) -> str:
    """One sentence: the first collective at which the ranks part; empty when the recorder says nothing.

    ``stands`` are the lines of the experiment, ``file:line``, at which ranks stand.
    """
    issued = {rank: _issued(folder / str(rank) / ANSWER) for rank in range(world)}
    known = {rank: calls for rank, calls in issued.items() if calls is not None}
    if len(known) < 2:
        return ""
    longest = max(len(calls) for calls in known.values())
    for number in range(longest):
        at = {rank: calls[number] if number < len(calls) else None for rank, calls in known.items()}
        if len(set(at.values())) == 1:
            continue
        there = {rank: call for rank, call in at.items() if call is not None}
        missing = [rank for rank, call in at.items() if call is None]
        if len(set(there.values())) == 1 and missing:
            call = next(iter(there.values()))
            waits = "waits" if len(there) == 1 else "wait"
            line = {stands.get(rank, "") for rank in there}
            where = f" at {line.pop()}" if len(line) == 1 and "" not in line else ""
            told = f"{names(list(there))} {waits} in it{where}"
            return f"{names(missing)} never issued collective #{number + 1}, {call}; {told}"
        same: dict[str, list[int]] = {}
        for rank, issue in at.items():
            same.setdefault(issue or "nothing", []).append(rank)
        told = "; ".join(f"{names(ranks)} issued {what}" for what, ranks in same.items())
        return f"the ranks part at collective #{number + 1}: {told}"
    return ""


def _issued(path: Path) -> list[str] | None:
    try:
        dump: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return [_describe(entry) for entry in dump.get("entries", ())]


def _describe(entry: dict[str, Any]) -> str:
    name = str(entry.get("profiling_name", "")).rpartition(":")[2]
    sizes, types = entry.get("input_sizes") or [], entry.get("input_dtypes") or []
    kinds = [_TYPES.get(str(kind), str(kind).lower()) for kind in types]
    shapes = " ".join(f"{size} {kind}" for size, kind in zip(sizes, kinds, strict=False))
    return f"{name} {shapes}".strip()
