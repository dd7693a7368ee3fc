"""The leader's end of the connections: who is there, what each says of itself, and who has gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from dslint.probe.arms import ProbeError, ServerDied
from dslint.probe.cluster.launched import Launched
from dslint.probe.cluster.member import SILENCE
from dslint.probe.cluster.wire import Closed, Line, Message, admit, listen

# Seconds in which all members must have come: hosts that start a container first take their time.
JOIN = 120.0
_LAST_WORDS = 0.5
_SILENT = 5.0


class Hub:
    """Connections to all members. Every wait is bounded: a member that goes away, or falls silent, ends the run."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._socket = listen(launched)
        self._socket.settimeout(0.5)
        self.hellos: dict[int, Message] = {}
        self.lost = ""
        self._stopped = ""
        self._lines: dict[int, Line] = {}
        self._heard: dict[int, float] = {}
        self._states: dict[int, tuple[float, Message]] = {}
        self._replies: dict[int, Message] = {}
        self._asked = 0
        self._over = threading.Event()
        self._news = threading.Condition()
        for work in (self._accept, self._ping):
            threading.Thread(target=work, daemon=True).start()

    def gather(self, patience: float = JOIN) -> None:
        """Wait until every rank is there.

        Raises:
            ProbeError: some did not come; the message names them.
        """
        deadline = time.monotonic() + patience
        world = self._launched.world
        while len(self.hellos) < world:
            if time.monotonic() > deadline:
                missing = [rank for rank in range(world) if rank not in self.hellos]
                names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
                raise ProbeError(
                    f"{len(self.hellos)} of {world} ranks came within {patience:.0f} s, rank {names} did not: does"
                    f" {self._launched.launcher} start one process for each rank, and do all hosts reach"
                    f" {self._launched.address}?"
                )
            self._wait(0.1)
        versions = {rank: hello["version"] for rank, hello in self.hellos.items()}
        other = next((rank for rank in versions if versions[rank] != versions[0]), None)
        if other is not None:
            raise ProbeError(f"dslint {versions[0]} runs on rank 0, {versions[other]} on {self.name(other)}")

    def name(self, rank: int) -> str:
        """``rank 3 (node7)``."""
        return f"rank {rank} ({self.hellos[rank]['host']})" if rank in self.hellos else f"rank {rank}"

    def reached(self) -> str:
        """An address of this host at which members of other hosts come in; empty when all use the loopback."""
        owns = (line.own for line in list(self._lines.values()))
        return next((own for own in owns if not own.startswith("127.") and own != "::1"), "")

    def stop(self, why: str) -> None:
        """Let the next wait end the run, from a signal handler: sets one attribute and takes no lock."""
        self._stopped = why

    def ask(self, request: Message, ranks: Iterable[int], patience: float) -> dict[int, Message]:
        """Send a request to these ranks and wait for all replies.

        Raises:
            ProbeError: a member is gone, reports an error, or did not reply within ``patience`` seconds.
            ServerDied: a fork server is gone; its member is still there.
        """
        asked: dict[int, int] = {}
        for rank in ranks:
            self._asked += 1
            asked[rank] = self._asked
            try:
                self._lines[rank].send({**request, "id": self._asked})
            except Closed as closed:
                self._lose(f"{self.name(rank)} went away: {closed}")
        deadline = time.monotonic() + patience
        while not all(number in self._replies for number in asked.values()):
            if time.monotonic() > deadline:
                late = next(rank for rank, number in asked.items() if number not in self._replies)
                self._lose(f"{self.name(late)} did not answer within {patience:.0f} s")
            self._wait(0.1)
        found = {rank: self._replies.pop(number) for rank, number in asked.items()}
        for rank, reply in found.items():
            if "died" in reply:
                raise ServerDied(f"{self.name(rank)}: {reply['died']}")
            if "error" in reply:
                raise ProbeError(f"{self.name(rank)}: {reply['error']}")
        return {rank: reply["reply"] for rank, reply in found.items()}

    def states(self, arm: str, ranks: Iterable[int], pause: float) -> dict[int, tuple[float, Message]]:
        """After at most ``pause`` seconds: (age in seconds, state) of these ranks in this arm, as far as known.

        Raises:
            ProbeError: a member is gone.
            ServerDied: a fork server is gone.
        """
        self._wait(pause)
        now = time.monotonic()
        found = {}
        for rank in ranks:
            at, state = self._states.get(rank, (0.0, {}))
            if state.get("arm") != arm:
                continue
            if "died" in state:
                raise ServerDied(f"{self.name(rank)}: {state['died']}")
            found[rank] = (now - at, state)
        return found

    def end(self, patience: float = 15.0) -> None:
        """Tell all members that the run is over, and wait until they have cleaned up and gone."""
        self._over.set()
        lines = list(self._lines.values())
        for line in lines:
            with suppress(Closed):
                line.send({"op": "end"})
        deadline = time.monotonic() + patience
        with self._news:
            # Not for a host that has fallen silent.
            while any(time.monotonic() - self._heard[rank] < _SILENT for rank in self._lines):
                self._news.wait(0.1)
                if time.monotonic() > deadline:
                    break
        for line in lines:
            line.close()
        self._socket.close()

    def _wait(self, seconds: float) -> None:
        """Wait for news.

        Raises:
            ProbeError: somebody is gone, or the launcher ends the run.
        """
        with self._news:
            self._news.wait(seconds)
            if self._stopped and not self.lost:
                # The launcher ends all processes when one has died: who it was may be known in a moment.
                self._news.wait_for(lambda: self.lost, _LAST_WORDS)
                self.lost = self.lost or self._stopped
        if not self.lost:
            now = time.monotonic()
            silent = next((rank for rank, at in self._heard.items() if now - at > SILENCE), None)
            if silent is not None:
                self._lose(f"nothing was heard of {self.name(silent)} for {SILENCE:.0f} s")
        if self.lost:
            raise ProbeError(self.lost)

    def _lose(self, why: str) -> None:
        with self._news:
            self.lost = self.lost or why
            self._news.notify_all()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):  # nobody came for a while, or the socket is closed
                connection, _ = self._socket.accept()
                threading.Thread(target=self._follow, args=(Line(connection),), daemon=True).start()

    def _ping(self) -> None:
        while not self._over.wait(1.0):
            for line in list(self._lines.values()):
                with suppress(Closed):
                    line.send({"op": "ping"})

    def _follow(self, line: Line) -> None:
        """Read what one member says, until it goes away."""
        rank = None
        why: Any = "it closed the connection"
        try:
            rank = self._admit(line)
            while rank is not None:
                message = line.receive(1.0)
                if message is not None:
                    self._heed(rank, message)
        except Closed as closed:
            why = closed
        line.close()
        if rank is not None:
            if not self._over.is_set():
                self._lose(f"{self.name(rank)} went away: {why}")
            with self._news:
                self._lines.pop(rank, None)
                self._news.notify_all()

    def _admit(self, line: Line) -> int | None:
        rank = admit(line, self._launched.secret, self._launched.world)
        hello = line.receive(30.0) if rank is not None else None
        if rank is None or hello is None or "hello" not in hello:
            return None
        with self._news:
            taken = rank in self.hellos
            if not taken:
                self.hellos[rank], self._lines[rank], self._heard[rank] = hello["hello"], line, time.monotonic()
            self._news.notify_all()
        if taken:
            why = f"two processes say that they are rank {rank}: {self.hellos[rank]['host']}, {hello['hello']['host']}"
            line.send({"op": "refuse", "why": why})
            self._lose(why)
            return None
        return rank

    def _heed(self, rank: int, message: Message) -> None:
        with self._news:
            self._heard[rank] = time.monotonic()
            if "state" in message:
                self._states[rank] = (time.monotonic(), message["state"])
                self._news.notify_all()
            elif "id" in message:
                self._replies[message["id"]] = message
                self._news.notify_all()
