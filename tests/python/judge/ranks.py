"""Simulated ranks: one thread each, of which exactly one runs at a time, and a scheduler that knows who waits."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

READY, WAITING, ENDED = "ready", "waiting", "ended"
# How long one rank may compute between two collectives before the run is given up.
PATIENCE = 20.0
# And how long a whole run may take.
OVERALL = 60.0


class WorldEndedError(BaseException):
    """The job is over (deadlock, mismatch, time): no code of the program may go on."""


class RunawayError(BaseException):
    """The program runs for too long."""


@dataclass(frozen=True)
class EventId:
    """One call of a stand-in: its canonical path, and the place of the call expression."""

    api: str
    path: str
    line: int
    col: int


@dataclass
class Group:
    """Ranks that meet in collectives. Two groups of the same ranks are two meetings."""

    key: str
    members: tuple[int, ...]

    def rank(self) -> int:
        return self.members.index(current().number) if current().number in self.members else -1

    def size(self) -> int:
        return len(self.members)


@dataclass
class Rank:
    """One rank of one run: its place in the job, what it has done, and how it ended."""

    number: int
    size: int
    world: World
    trace: list[EventId] = field(default_factory=list)
    # Length of the trace at the first exception that no statement of the program raises.
    cut_at: int | None = None
    cut_by: str = ""
    outcome: str = ""  # "end", "exit", "raise X", "undeclared X", or why the world ended
    error: BaseException | None = None
    state: str = READY
    result: Any = None
    waits_for: str = ""
    inside: int = 0  # depth of stand-in code that is running: calls from there are no events
    own: dict[str, Any] = field(default_factory=dict)  # what stand-ins keep for this rank
    recorder: Any = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None

    @property
    def per_node(self) -> int:
        return max(1, self.size // self.world.nodes)

    @property
    def local(self) -> int:
        return self.number % self.per_node

    @property
    def node(self) -> int:
        return self.number // self.per_node


_THREAD = threading.local()
_now = time.monotonic  # the real clock: programs have their own


def current() -> Rank:
    """The rank whose code is running."""
    return _THREAD.rank  # type: ignore[no-any-return]


class World:
    """The job: its ranks, who waits for whom, and why it ended."""

    def __init__(self, size: int, nodes: int = 1) -> None:
        self.size, self.nodes = size, nodes
        self.ranks = [Rank(n, size, self) for n in range(size)]
        self.everyone = Group("world", tuple(range(size)))
        self.ended = ""
        self._back = threading.Semaphore(0)
        self._meetings: dict[str, dict[int, tuple[Any, Any]]] = {}
        self._mail: dict[tuple[int, int, int], deque[Any]] = {}
        self.shared: dict[str, Any] = {}  # keys of stores, interned contexts: one for all ranks

    def run(self, body: Callable[[Rank], None], enter: Callable[[Rank], None], leave: Callable[[Rank], None]) -> None:
        """Run `body` for each rank; `enter` and `leave` give it its surroundings around each turn."""
        for rank in self.ranks:
            rank.thread = threading.Thread(target=self._thread, args=(rank, body), daemon=True)
            rank.thread.start()
        turn, deadline = 0, _now() + OVERALL
        while True:
            if _now() > deadline:
                self.end("time is over")
            ready = [r for r in self.ranks if r.state == READY]
            if not ready:
                waiting = [r for r in self.ranks if r.state == WAITING]
                if not waiting:
                    return
                self.end("deadlock: " + "; ".join(f"rank {r.number} waits in {r.waits_for}" for r in waiting))
                continue
            rank = next((r for r in ready if r.number >= turn), ready[0])
            turn = rank.number
            enter(rank)
            rank.go.release()
            came_back = self._back.acquire(timeout=min(PATIENCE, max(0.1, deadline - _now()))) or self._stop(rank)
            leave(rank)
            if not came_back:
                rank.state, rank.outcome = ENDED, "stuck"

    def _thread(self, rank: Rank, body: Callable[[Rank], None]) -> None:
        rank.go.acquire()
        _THREAD.rank = rank
        try:
            if not self.ended:
                body(rank)
        except WorldEndedError:
            pass
        finally:
            rank.outcome = rank.outcome or self.ended or "end"
            rank.state = ENDED
            self._back.release()

    def _stop(self, rank: Rank) -> bool:
        """The rank computes for too long: make it raise."""
        self.end("time is over")
        assert rank.thread is not None
        for _ in range(3):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(rank.thread.ident or 0), ctypes.py_object(WorldEndedError)
            )
            if self._back.acquire(timeout=1.0):
                return True
        return False

    def end(self, why: str) -> None:
        """The job is over: whoever waits is woken to find out."""
        self.ended = self.ended or why
        for rank in self.ranks:
            if rank.state == WAITING:
                rank.state = READY

    def _pause(self, rank: Rank, what: str) -> None:
        """Let others run until somebody makes this rank ready."""
        rank.state, rank.waits_for = WAITING, what
        self._back.release()
        rank.go.acquire()
        if self.ended:
            raise WorldEndedError(self.ended)

    def meet(self, group: Group, what: str, payload: Any = None) -> list[Any]:
        """A collective: wait for all of `group`; the payloads of its members in their order."""
        rank = current()
        if self.ended:
            raise WorldEndedError(self.ended)
        if rank.number not in group.members:
            return [payload]
        meeting = self._meetings.setdefault(group.key, {})
        for other, (other_what, _) in meeting.items():
            if other_what != what:
                self.end(f"mismatch: rank {rank.number} in {what}, rank {other} in {other_what}")
                raise WorldEndedError(self.ended)
        meeting[rank.number] = (what, payload)
        if len(meeting) < len(group.members):
            self._pause(rank, f"{what} of {group.key}")
            return rank.result  # type: ignore[no-any-return]
        del self._meetings[group.key]
        brought = [meeting[n][1] for n in group.members]
        for number in group.members:
            self.ranks[number].result = brought
            if number != rank.number:
                self.ranks[number].state = READY
        return brought

    def send(self, to: int, tag: int, payload: Any) -> None:
        """Put a message into the box of `to` (it never blocks) and wake who may wait for it."""
        if self.ended:
            raise WorldEndedError(self.ended)
        self._mail.setdefault((current().number, to, tag), deque()).append(payload)
        if 0 <= to < self.size and self.ranks[to].state == WAITING and self.ranks[to].waits_for.startswith("recv"):
            self.ranks[to].state = READY

    def receive(self, source: int | None, tag: int) -> tuple[int, Any]:
        """The next message from `source` (None: from anybody)."""
        rank = current()
        while True:
            for key in self._mail:
                if key[1:] == (rank.number, tag) and source in (None, key[0]) and self._mail[key]:
                    return key[0], self._mail[key].popleft()
            self._pause(rank, f"recv from {source}")
