"""A member: starts, watches and stops the process of one rank, as the leader says."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dslint import __version__
from dslint.probe import gpus
from dslint.probe.arms import ProbeError, ServerDied
from dslint.probe.cluster.devices import interface_of, machine
from dslint.probe.cluster.launched import Launched
from dslint.probe.cluster.wire import Closed, Line, Message
from dslint.probe.environment import network
from dslint.probe.explain import ANSWER, collect
from dslint.probe.rank import Task
from dslint.probe.supervisor import Supervisor
from dslint.probe.watch import POLL_LATER, Watch

# A side that says nothing for so many seconds is gone; both send a sign of life every second.
SILENCE = 30.0
# Seconds between two states when nothing changes.
AGAIN = 0.2


def is_ours(module: str) -> bool:
    """An experiment of the library. A member runs nothing else, whoever may ask."""
    from dslint.probe.registry import entries

    return any(entry.stem == module for entry in entries())


@dataclass(slots=True)
class _Running:
    """The arm that the rank takes part in; ``arm`` is its name on the leader, ``own`` its name here."""

    arm: str
    own: str
    folder: Path
    watch: Watch
    told: Message
    at: float = 0.0


class Member:
    """One process of the launch. ``accepts`` says which experiments it runs."""

    def __init__(
        self, launched: Launched, line: Line, python: str = "", accepts: Callable[[str], bool] = is_ours
    ) -> None:
        self._launched = launched
        self._line = line
        self._python = python
        self._accepts = accepts
        self._gpus = gpus.visible()
        self._supervisor: Supervisor | None = None
        self._running: _Running | None = None
        self._over = threading.Event()

    def serve(self) -> None:
        """Do what the leader says until it says that the run is over.

        Raises:
            ProbeError: the leader went away.
        """
        with ExitStack() as stack:
            stack.callback(self._line.close)
            stack.callback(self._over.set)
            try:
                self._line.send({"hello": self._hello()})
                threading.Thread(target=self._live, daemon=True).start()
                self._serve(stack)
            except Closed as closed:
                raise ProbeError(f"rank {self._launched.rank}: rank 0 went away: {closed}") from closed

    def _hello(self) -> Message:
        return {
            "host": socket.gethostname(), "pid": os.getpid(), "version": __version__, "gpus": self._gpus,
            "local": self._launched.local, "machine": machine(),
        }  # fmt: skip

    def _live(self) -> None:
        # From a thread: the main one imports libraries for minutes.
        while not self._over.wait(1.0):
            try:
                self._line.send({"alive": True})
            except Closed:
                return

    def _serve(self, stack: ExitStack) -> None:
        heard = time.monotonic()
        while True:
            message = self._line.receive(POLL_LATER if self._running else 0.5)
            if message is None and time.monotonic() - heard > SILENCE:
                raise Closed(f"nothing heard for {SILENCE:.0f} s")
            if message is not None:
                heard = time.monotonic()
                if message["op"] == "end":
                    return
                if message["op"] == "refuse":
                    raise ProbeError(message["why"])
                if message["op"] != "ping":
                    self._line.send({"id": message["id"], **self._answer(message, stack)})
            if self._running:
                self._tell(self._running)

    def _answer(self, message: Message, stack: ExitStack) -> Message:
        actions: dict[str, Callable[[Message], Message]] = {
            "sees": self._sees, "warm": self._warm, "start": self._start, "look": self._look, "finish": self._finish,
            "stop": self._stop,
        }  # fmt: skip
        try:
            if message["op"] == "prepare":
                return {"reply": self._prepare(message, stack)}
            return {"reply": actions[message["op"]](message)}
        except ServerDied as died:
            self._own.stop_server()
            return {"died": str(died)}
        except (ProbeError, OSError) as error:
            return {"error": str(error)}

    @property
    def _own(self) -> Supervisor:
        if self._supervisor is None:
            raise ProbeError("the leader did not prepare this member")
        return self._supervisor

    def _prepare(self, message: Message, stack: ExitStack) -> Message:
        mine = self._line.own
        # On the host of rank 0 the way to rank 0 may be the loopback device, where no other host comes in.
        reached = message["reached"] if mine.startswith("127.") and message["reached"] else mine
        gpus = len(self._gpus) if message["cuda"] else 0
        made = Supervisor(gpus, self._python, run_id=message["run"], between=network(interface_of(reached)))
        self._supervisor = stack.enter_context(made)
        return {"root": str(made.root)}

    def _sees(self, message: Message) -> Message:
        try:
            return {"sees": Path(message["path"]).read_text(encoding="utf-8") == message["text"]}
        except OSError:
            return {"sees": False}

    def _warm(self, message: Message) -> Message:
        supervisor = self._own
        before = supervisor.warm_seconds
        supervisor.warm(message["flavour"])
        return {"versions": supervisor.versions, "seconds": supervisor.warm_seconds - before}

    def _start(self, message: Message) -> Message:
        supervisor, rank = self._own, self._launched.rank
        given = message["task"]
        if not self._accepts(str(given["experiment"])):
            raise ProbeError(f"rank {rank} has no experiment `{given['experiment']}`")
        supervisor.warm(message["flavour"])
        own, folder = supervisor.new_arm([rank])
        task = Task(
            **given, rank=rank, folder=str(folder), address=self._launched.address, local=self._launched.local,
            gpus=len(self._gpus) if message["cuda"] else 0,
        )  # fmt: skip
        pids = supervisor.start(own, [asdict(task)])
        watch = Watch(
            folder, pids, message["quiet"], message["limit"], lambda: supervisor.ended(own), spins=bool(task.gpus)
        )
        self._running = _Running(message["arm"], own, folder, watch, {})
        return {}

    def _tell(self, running: _Running) -> None:
        """Send the state of the rank when it has changed, and now and then anyway.

        ``asleep`` speaks of the quiet time before the message: the leader adds how old the message is, and so compares
        no clocks of different hosts.
        """
        rank = self._launched.rank
        now = time.monotonic()
        try:
            open_ranks, bad = running.watch.look()
            state: Message = {"arm": running.arm, "open": bool(open_ranks), "bad": bad}
            state["asleep"] = bool(open_ranks) and running.watch.asleep([rank], now)
            state["marks"] = running.watch.progress(rank)
        except ServerDied as died:
            state = {"arm": running.arm, "died": str(died)}
        if state != running.told or now - running.at > AGAIN:
            running.told, running.at = state, now
            self._line.send({"state": state})

    def _look(self, message: Message) -> Message:  # noqa: ARG002 - the shape of all actions
        running = self._running
        if running is None:
            return {"still": False, "marks": 0}
        still = running.watch.stands_still([self._launched.rank])
        open_ranks, bad = running.watch.look()
        return {"still": still and bool(open_ranks) and not bad, "marks": running.watch.progress(self._launched.rank)}

    def _finish(self, message: Message) -> Message:
        running, rank = self._running, self._launched.rank
        if running is None:
            raise ProbeError(f"rank {rank} runs no arm")
        open_ranks, _ = running.watch.look()
        if open_ranks and message["stacks"]:
            running.watch.stacks([rank])
        recorder = ""
        if message["explain"]:
            collect(running.folder, [rank])
            answer = running.folder / str(rank) / ANSWER
            recorder = answer.read_text(encoding="utf-8") if answer.exists() else ""
        found: dict[str, Any] = asdict(running.watch.outcome(rank, message["late"]))
        return {"outcome": {**found, "kind": found["kind"].value}, "recorder": recorder}

    def _stop(self, message: Message) -> Message:  # noqa: ARG002
        running, self._running = self._running, None
        if running is not None:
            self._own.stop(running.own)
        return {}
