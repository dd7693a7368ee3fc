"""Runs arms: owns the fork server, the folders and the clean-up. Imports no torch."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from dslint.probe.arms import Arm, ArmRunner, ProbeError, ServerDied
from dslint.probe.environment import bootstrap, environment, make_folders
from dslint.probe.experiment import FLAVOURS, Experiment
from dslint.probe.outcome import ArmOutcome, Kind
from dslint.probe.rank import Task
from dslint.probe.watch import Watch

# A rank sleeps this long, in seconds, before a stall is looked into.
QUIET = 0.8
GPU_QUIET = 4.0
START_UP = 120.0


class Supervisor(ArmRunner):
    """A probe run. Use as a context manager: at the end, however it comes, no process and no file is left.

    Args:
        gpus: CUDA devices that ranks may use. With one for each rank an arm runs over nccl; with fewer, over gloo with
            CUDA tensors; with none, over gloo on the CPU.
        spawn: start each rank as a new process instead of a fork; default: with GPUs, since CUDA cannot follow a fork.
        python: the interpreter whose torch and DeepSpeed are probed; default: this one.
        run_id: marks every process of the run; default: a new one.
        between: variables of the network, when ranks of other hosts take part (:func:`~.environment.network`).
    """

    def __init__(
        self,
        gpus: int = 0,
        python: str = "",
        spawn: bool | None = None,
        run_id: str = "",
        between: Mapping[str, str] | None = None,
    ) -> None:
        self.gpus = gpus
        self.spawn = bool(gpus) if spawn is None else spawn
        self.python = python or sys.executable
        self.run_id = run_id or uuid.uuid4().hex
        self._between = between
        self.versions: dict[str, str] = {}
        # What to install, once an import has failed.
        self.missing = ""
        self.warm_seconds = 0.0
        self._flavour = ""
        self._server: subprocess.Popen[bytes] | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._arms = 0
        self.root = Path()

    def __enter__(self) -> Supervisor:
        if not os.access(self.python, os.X_OK):
            raise ProbeError(f"{self.python} is no interpreter that can be run")
        self.root = Path(tempfile.mkdtemp(prefix="dslint-probe-"))
        janitor = Path(__file__).with_name("janitor.py")
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(janitor), self.run_id, str(self.root)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        make_folders(self.root)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_server()
        janitor = self._janitor
        if janitor is not None and janitor.stdin is not None:
            janitor.stdin.close()
            janitor.wait()
        else:
            shutil.rmtree(self.root, ignore_errors=True)

    def devices(self, experiment: Experiment) -> int:
        """How many GPUs the ranks of an experiment share."""
        return self.gpus if experiment.takes_gpus else 0

    def backend(self, experiment: Experiment, world: int = 0) -> str:
        """``nccl`` when each rank has a GPU of its own: nccl refuses two ranks on one."""
        return "nccl" if self.devices(experiment) >= (world or experiment.ranks) else "gloo"

    def warm(self, flavour: str) -> None:
        """Have a fork server that has imported what experiments of this flavour need.

        Raises:
            ProbeError: a library is missing.
        """
        with self._lock:
            if self._server is not None and FLAVOURS.index(flavour) <= FLAVOURS.index(self._flavour or "plain"):
                return
            if self._server is None:
                self._start_server()
            reply = self._ask({"op": "warm", "flavour": flavour}, START_UP)
            self.versions = reply["versions"]
            self.warm_seconds += reply["seconds"]
            if reply["missing"]:
                self.stop_server()
                what = f"{reply['missing']} in {self.python}"
                self.missing = (
                    f"{what}: install the extra `deepspeed-lint[probe]`"
                    " (torch, deepspeed, transformers, accelerate) there, or name the interpreter that has them"
                    " with --python"
                )
                raise ProbeError(what)  # what to do about it is said once
            self._flavour = flavour

    def _server_died(self) -> None:
        self.stop_server()

    def _run(self, arm: Arm) -> tuple[ArmOutcome, Path]:
        experiment = arm.experiment
        world = arm.ranks or experiment.ranks
        name, folder = self.new_arm(range(world))
        gpus = self.devices(experiment)
        limit = experiment.limit * (2 if gpus else 1) + (START_UP if self.spawn else 0)
        common = {
            "experiment": arm.module, "fixed": arm.fixed, "params": dict(arm.case.params), "world": world,
            "folder": str(folder), "backend": arm.backend or self.backend(experiment, world), "gpus": gpus,
            "port": _free_port(), "deadline": int(limit) + 15, "explain": arm.explain,
        }  # fmt: skip
        tasks = [asdict(Task(rank=rank, **common)) for rank in range(world)]  # type: ignore[arg-type]
        pids = self.start(name, tasks)
        try:
            quiet = GPU_QUIET if gpus else QUIET
            watch = Watch(folder, pids, quiet, limit, lambda: self.ended(name), spins=bool(gpus))
            outcome = watch.run()
            if arm.explain and outcome.kind is Kind.STALL:
                from dslint.probe.explain import collect

                collect(folder, range(world))
        finally:
            self.stop(name)
        return outcome, folder

    def new_arm(self, ranks: Iterable[int]) -> tuple[str, Path]:
        """Name and folder of an arm, with a folder in it for each of these ranks."""
        with self._lock:
            self._arms += 1
            name = f"{self._arms:04d}"
        folder = self.root / "arms" / name
        for rank in ranks:
            (folder / str(rank)).mkdir(parents=True)
        return name, folder

    def start(self, arm: str, tasks: Sequence[dict[str, Any]]) -> dict[int, int]:
        """Start the ranks of an arm; returns their process ids by rank."""
        pids = self._ask({"op": "start", "arm": arm, "tasks": tasks, "spawn": self.spawn})["pids"]
        return {int(task["rank"]): pid for task, pid in zip(tasks, pids, strict=True)}

    def stop(self, arm: str) -> None:
        """Kill the ranks of an arm with everything in their process groups."""
        self._ask({"op": "stop", "arm": arm})

    def ended(self, arm: str) -> dict[int, int]:
        """Wait statuses of the ranks that ended, by process id."""
        return {int(pid): status for pid, status in self._ask({"op": "poll", "arm": arm})["ended"].items()}

    def _start_server(self) -> None:
        log = open(self.root / "server.log", "ab")  # noqa: SIM115 - the child keeps it
        self._server = subprocess.Popen(
            bootstrap(self.python, "dslint.probe.forkserver"), cwd=self.root / "home", stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            env=environment(self.root, self.run_id, bool(self.gpus), between=self._between),
        )  # fmt: skip
        log.close()
        self._flavour = ""

    def stop_server(self) -> None:
        """Kill the fork server with its ranks; the next :meth:`warm` starts another."""
        server, self._server = self._server, None
        self._flavour = ""
        if server is None:
            return
        server.kill()  # its ranks die with it
        for stream in (server.stdin, server.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue
        server.wait()

    def _ask(self, request: dict[str, Any], patience: float = 30.0) -> dict[str, Any]:
        with self._lock:
            server = self._server
            if server is None or server.stdin is None or server.stdout is None:
                raise ServerDied("it was not running")
            try:
                server.stdin.write(json.dumps(request).encode() + b"\n")
                server.stdin.flush()
                line = _line(server.stdout.fileno(), time.monotonic() + patience)
            except OSError as error:
                raise ServerDied(str(error)) from error
            if not line:
                raise ServerDied(self._last_words())
            reply: dict[str, Any] = json.loads(line)
            return reply

    def _last_words(self) -> str:
        lines = (self.root / "server.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _line(descriptor: int, deadline: float) -> bytes:
    """A line from a pipe that only single replies come through; empty when it ends or the time is over."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(descriptor, 65536) if ready else b""
        if not part:
            return b""
        parts.append(part)
        if part.endswith(b"\n"):
            return b"".join(parts)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
