"""The life of a rank: confined, deaf to the user's environment, it runs one arm and then holds until it is released.

A rank that finished early must not exit: its peers would see "connection closed" where a real job, whose ranks go on
to other work, hangs. So it stays alive, asleep, until the supervisor kills it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

PR_SET_PDEATHSIG = 1
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Task:
    """What a rank is told: which arm of which experiment, where, and for how long (``deadline``, in seconds).

    ``gpus`` is the number of CUDA devices that the ranks of the arm share, 0 on a CPU. When ranks of other hosts take
    part, ``address`` names the host of rank 0, which all of them reach; ``local`` is the number of the rank on its
    host, of ``local_world``; ``shared`` a folder that all ranks see, if there is one.
    """

    experiment: str
    fixed: bool
    params: dict[str, Any]
    rank: int
    world: int
    folder: str
    backend: str
    gpus: int
    port: int
    deadline: int
    explain: bool = False
    address: str = ""
    local: int = -1
    local_world: int = 0
    shared: str = ""

    @property
    def own(self) -> str:
        """The folder of this rank inside the folder of the arm."""
        return os.path.join(self.folder, str(self.rank))

    @property
    def number(self) -> int:
        """The number of the rank on its host."""
        return self.rank if self.local < 0 else self.local


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process with its parent (Linux); exit when the parent is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)


def confine(deadline: int, cuda: bool) -> None:
    """Limits of a rank: wrongly paired collectives can ask for petabytes (garbage sizes), a loop can run for ever."""
    signal.alarm(deadline)  # kills also when blocked in a C++ collective
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, GIB), (resource.RLIMIT_NOFILE, 4096)]
    if not cuda:  # CUDA reserves address space far beyond what it uses
        limits += [(resource.RLIMIT_DATA, 8 * GIB), (resource.RLIMIT_AS, 48 * GIB)]
    for which, value in limits:
        _, hard = resource.getrlimit(which)
        top = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (top, top))


class Rank:
    """What an arm sees (``RankApi``)."""

    def __init__(self, task: Task) -> None:
        self.index = task.rank
        self.world = task.world
        self.fixed = task.fixed
        self.params = task.params
        self.folder = task.shared or task.folder
        self.backend = task.backend
        # Two ranks can share one device over gloo; over nccl each has its own.
        self.device = f"cuda:{task.number % task.gpus}" if task.gpus else "cpu"
        self._task = task
        self._marks = os.open(os.path.join(task.own, "marks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def mark(self, what: str) -> None:
        """Say that the rank got on; the watchdog counts these marks."""
        os.write(self._marks, (what.replace("\n", " ") + "\n").encode())

    def init(self, timeout: float = 600.0) -> None:
        """Make the default process group over :meth:`store`.

        Args:
            timeout: of the group, in seconds. Far longer than the watchdog waits, so that a hang looks like one.
        """
        from datetime import timedelta

        import torch
        import torch.distributed as dist

        if self.device.startswith("cuda"):
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            self.backend, store=self.store(), rank=self.index, world_size=self.world, timeout=timedelta(seconds=timeout)
        )
        self.mark("process group ready")

    def store(self) -> Any:
        """The store over which the ranks find each other.

        A file in the folder of the arm: no port, no race for one. Between hosts, a TCPStore of rank 0.
        """
        import torch.distributed as dist

        if not self._task.address:
            return dist.FileStore(os.path.join(self.folder, "store"), self.world)
        return dist.TCPStore(
            self._task.address, self._task.port, self.world, is_master=self.index == 0, wait_for_workers=False,
            multi_tenant=True,
        )  # fmt: skip

    def command(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, patience: float = 60.0, quiet: float = 6.0
    ) -> dict[str, Any]:
        """Run a program until it ends, or does nothing for ``quiet`` seconds; see :mod:`dslint.probe.commands`."""
        from dslint.probe.commands import run

        return run(argv, self._task.own, env or {}, patience, quiet, self.mark)


def _environment(task: Task) -> None:
    os.environ.update(
        RANK=str(task.rank),
        LOCAL_RANK=str(task.number),
        WORLD_SIZE=str(task.world),
        LOCAL_WORLD_SIZE=str(task.local_world or task.world),
        MASTER_ADDR=task.address or "127.0.0.1",
        MASTER_PORT=str(task.port),
    )


def _streams(task: Task) -> None:
    os.makedirs(task.own, exist_ok=True)
    os.chdir(task.own)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = os.fdopen(number, "w", buffering=1, closefd=False, encoding="utf-8", errors="replace")
        setattr(sys, name, stream)


def live(task: Task, parent: int) -> None:
    """Run the arm, write what came of it, and hold. Does not return."""
    os.setsid()
    die_with_parent(parent)
    _streams(task)
    _environment(task)
    confine(task.deadline, bool(task.gpus))
    stacks = open("stacks", "w", encoding="utf-8")  # noqa: SIM115 - faulthandler keeps the descriptor
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    if task.explain:
        from dslint.probe.explain import record

        record(task.own)
    _write(_outcome(task))
    while True:
        signal.pause()


def _outcome(task: Task) -> dict[str, Any]:
    try:
        name = task.experiment if "." in task.experiment else f"dslint.probe.experiments.{task.experiment}"
        module = import_module(name)
        _seed(task, module.EXPERIMENT.flavour)
        rank = Rank(task)
        rank.mark("started")
        value = (module.fixed if task.fixed else module.written)(rank)
        return {"kind": "ok", "value": value}
    except BaseException as error:
        if not sys.stderr.closed:
            traceback.print_exc()
        frames = traceback.extract_tb(error.__traceback__)
        stack = [f"{f.name} ({os.path.basename(f.filename)}:{f.lineno})" for f in reversed(frames)]
        return {"kind": "raise", "text": f"{type(error).__name__}: {error}"[:4000], "stack": stack[:30]}


def _seed(task: Task, flavour: str) -> None:
    random.seed(0)
    if flavour != "plain":
        import torch

        torch.manual_seed(0)
        if not task.gpus:
            torch.set_num_threads(1)


def _write(outcome: dict[str, Any]) -> None:
    try:
        text = json.dumps(outcome)
    except (TypeError, ValueError) as error:
        text = json.dumps({"kind": "raise", "text": f"the value of the arm is no JSON: {error}", "stack": []})
    with open("result.part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace("result.part", "result.json")


def main() -> None:
    """Entry of a spawned rank (GPU): the task comes as JSON on standard input."""
    parent = int(sys.argv[1])
    live(Task(**json.loads(sys.stdin.read())), parent)
