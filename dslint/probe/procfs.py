"""What ``/proc`` says of processes: do they work, wait for the processor, or sleep.

A rank that waits in a collective sleeps in all its threads and uses no processor time. A rank that is only slow, or
starved by other work on the machine, is runnable. That difference, unlike a time-out, holds on a loaded machine.
"""

from __future__ import annotations

import os
import time
from collections import deque

_TICK = os.sysconf("SC_CLK_TCK")


def threads(pid: int) -> list[tuple[str, int]] | None:
    """(state letter, processor ticks used) of each thread; ``None`` when the process is gone."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8", errors="replace") as file:
                # The name of the program stands in parentheses and may hold anything.
                fields = file.read().rpartition(")")[2].split()
            found.append((fields[0], int(fields[11]) + int(fields[12])))
    except OSError:
        return None
    return found


def descendants(pid: int) -> list[int]:
    """Process ids of the children of a process, and theirs, in no order."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    queue = [pid]
    while queue:
        own = children.get(queue.pop(), [])
        found += own
        queue += own
    return found


def at_work(pids: list[int], seconds: float, looks: int = 6) -> bool:
    """Watch processes for some seconds: any of them has used a tenth of a core, or was ready to run in most looks."""
    before = _spent(pids)
    ready = 0
    for _ in range(looks):
        time.sleep(seconds / looks)
        ready += any(state in "RD" for pid in pids for state, _ in threads(pid) or ())
    return _spent(pids) - before > 0.1 * seconds * _TICK or ready > looks / 2


def _spent(pids: list[int]) -> int:
    return sum(used for pid in pids for _, used in threads(pid) or ())


class Activity:
    """Tells whether processes have worked during the last ``window`` seconds."""

    def __init__(self, window: float) -> None:
        self.window = window
        self._ticks: dict[int, int] = {}
        # (time, processor ticks used since the last sample, something was runnable)
        self._samples: deque[tuple[float, int, bool]] = deque()
        self._start: float | None = None

    def sample(self, pids: list[int], now: float) -> None:
        """Look at the processes at time ``now`` (seconds, any clock that does not go back)."""
        used, runnable = 0, False
        for pid in pids:
            seen = threads(pid)
            if seen is None:
                continue
            ticks = sum(spent for _, spent in seen)
            before = self._ticks.get(pid)
            self._ticks[pid] = ticks
            # A process that was not there before has just been started: that is work.
            used += int(self.window * _TICK) if before is None else ticks - before
            runnable = runnable or any(state in "RD" for state, _ in seen)
        self._start = now if self._start is None else self._start
        self._samples.append((now, used, runnable))
        while self._samples and self._samples[0][0] < now - self.window:
            self._samples.popleft()

    def restart(self) -> None:
        """Something happened: the quiet time begins anew."""
        self._samples.clear()
        self._start = None

    def asleep(self, now: float) -> bool:
        """A whole window has passed in which next to nothing was done and hardly ever something could run.

        Polling (a launcher that looks after its workers ten times a second, a file store) uses up to some percent of a
        core, so a little work is allowed.
        """
        if self._start is None or now - self._start < self.window or len(self._samples) < 4:
            return False
        spent = sum(used for _, used, _ in self._samples) / _TICK
        ready = sum(runnable for _, _, runnable in self._samples)
        return spent <= 0.06 * self.window and ready <= 0.2 * len(self._samples)
