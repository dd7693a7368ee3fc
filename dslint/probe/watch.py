"""Watches the ranks of an arm from outside, until all are done, one is dead, or they stand still.

A stall is said only when all of this holds: no rank has made progress for a while, every thread of every unfinished
rank sleeps, two stacks taken 0.3 s apart are equal, and their innermost frames wait for others. A bare
time-out would call a loaded machine a hang.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dslint.probe.outcome import ArmOutcome, Kind, RankOutcome, combine
from dslint.probe.procfs import Activity, at_work, descendants
from dslint.probe.stacks import Stack, parse, place

# Seconds between two looks: an arm that passes is over in a tenth of a second, one that does not takes its time.
POLL_FIRST, POLL_LATER = 0.01, 0.05
# How long the peers of a rank that raised or died may take to come to their own end.
GRACE = 0.6
BETWEEN_STACKS = 0.3


class Watch:
    """Follows the ranks of an arm that live on this machine.

    ``pids`` holds their process ids by rank; ``ended()`` asks their parent for wait statuses by process id.
    """

    def __init__(
        self,
        folder: Path,
        pids: Mapping[int, int],
        quiet: float,
        limit: float,
        ended: Callable[[], dict[int, int]],
        spins: bool = False,
    ) -> None:
        self.folder = folder
        self.pids = pids
        self.limit = limit
        self._ended = ended
        self._activity = Activity(quiet)
        self._quiet = quiet
        # A rank that waits for a GPU spins, and stands in whatever line asked for the result: there only the marks and
        # the equal stacks speak.
        self._spins = spins
        self._progress = time.monotonic()
        self._sizes: dict[int, int] = {}
        self._stalled: dict[int, Stack] = {}
        self._results: dict[int, dict[str, Any] | None] = {}
        self._dead: dict[int, int] = {}

    def run(self) -> ArmOutcome:
        """Wait for the end of the arm."""
        start = time.monotonic()
        failed: float | None = None
        while True:
            time.sleep(POLL_FIRST if time.monotonic() - start < 0.5 else POLL_LATER)
            now = time.monotonic()
            open_ranks, bad = self.look()
            if failed is None and bad:
                failed = now
            if not open_ranks or now - start > self.limit or (failed is not None and now - failed > GRACE):
                break
            if self.asleep(open_ranks, now) and self.stands_still(open_ranks):
                break
        if open_ranks and failed is not None:
            self.stacks(open_ranks)
        late = now - start > self.limit and failed is None
        return combine(tuple(self.outcome(rank, late) for rank in sorted(self.pids)), now - start)

    def look(self) -> tuple[list[int], bool]:
        """The ranks that are still at work, and whether one has raised or died."""
        self._results = {rank: self._result(rank) for rank in self.pids}
        ended = self._ended()
        self._dead = {rank: ended[pid] for rank, pid in self.pids.items() if pid in ended}
        open_ranks = [rank for rank, result in self._results.items() if result is None and rank not in self._dead]
        raised = any(result is not None and result["kind"] == "raise" for result in self._results.values())
        return open_ranks, bool(self._dead) or raised

    def progress(self, rank: int) -> int:
        """A number that grows with every mark of a rank."""
        return _size(self.folder / str(rank) / "marks")

    def asleep(self, open_ranks: list[int], now: float) -> bool:
        """No mark and next to no work for the quiet time; to be called again and again."""
        for rank in open_ranks:
            size = _size(self.folder / str(rank) / "marks")
            if size != self._sizes.get(rank):
                self._sizes[rank] = size
                self._activity.restart()
                self._progress = now
        self._activity.sample([self.pids[rank] for rank in open_ranks], now)
        return now - self._progress > self._quiet if self._spins else self._activity.asleep(now)

    def stands_still(self, open_ranks: list[int]) -> bool:
        """Two stacks of each rank are equal and wait for others; if not, the quiet time begins anew.

        A rank that waits for programs of its own (a launcher) stands still only when these do too.
        """
        first = self.stacks(open_ranks)
        own = [child for rank in open_ranks for child in descendants(self.pids[rank])]
        works = at_work(own, BETWEEN_STACKS)
        second = self.stacks(open_ranks)
        waits = self._spins or all(stack.waits for stack in second.values())
        if first == second and len(second) == len(open_ranks) and waits and not works:
            self._stalled = second
            return True
        self._activity.restart()
        self._progress = time.monotonic()
        return False

    def stacks(self, ranks: list[int]) -> dict[int, Stack]:
        """A fresh stack of each rank; a rank that does not answer within a second is left out."""
        before = {rank: len(self._dumps(rank)) for rank in ranks}
        for rank in ranks:
            try:
                os.kill(self.pids[rank], signal.SIGUSR1)
            except OSError:
                continue
        deadline = time.monotonic() + 1.0
        found: dict[int, Stack] = {}
        while len(found) < len(ranks) and time.monotonic() < deadline:
            time.sleep(0.02)
            for rank in ranks:
                dumps = self._dumps(rank)
                if rank not in found and len(dumps) > before[rank]:
                    found[rank] = dumps[-1]
        self._stalled = found
        return found

    def _dumps(self, rank: int) -> list[Stack]:
        return parse(_text(self.folder / str(rank) / "stacks"))

    def _result(self, rank: int) -> dict[str, Any] | None:
        path = self.folder / str(rank) / "result.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def outcome(self, rank: int, late: bool) -> RankOutcome:
        """The end of a rank as of the last :meth:`look`; ``late``: its time is over."""
        result, status = self._results.get(rank), self._dead.get(rank)
        own = self.folder / str(rank)
        marks = tuple(_text(own / "marks").splitlines()[-20:])
        output = "\n".join(_text(own / "stderr")[-4000:].splitlines()[-15:])
        if result is not None and result["kind"] == "ok":
            return RankOutcome(rank, Kind.OK, result["value"], marks=marks)
        if result is not None:
            return RankOutcome(rank, Kind.RAISE, None, result["text"], tuple(result["stack"]), marks, output)
        if status is not None:
            return RankOutcome(rank, Kind.SIGNAL, None, _ending(status), (), marks, output)
        stack = self._stalled.get(rank, Stack())
        kind = Kind.LIMIT if late else Kind.STALL
        return RankOutcome(rank, kind, None, place(stack), tuple(stack), marks, output)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
