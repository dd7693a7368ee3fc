"""The leader: hands arms out to the members, decides from their states how an arm ended, and puts it together."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from dslint.probe.arms import Arm, ArmRunner, ProbeError, ServerDied
from dslint.probe.cluster.hub import JOIN, Hub
from dslint.probe.cluster.launched import Launched
from dslint.probe.cluster.member import Member, is_ours
from dslint.probe.cluster.wire import Message, join
from dslint.probe.experiment import FLAVOURS, Experiment
from dslint.probe.outcome import ArmOutcome, Kind, RankOutcome, combine
from dslint.probe.registry import Entry
from dslint.probe.supervisor import GPU_QUIET, QUIET, START_UP
from dslint.probe.watch import GRACE, POLL_LATER

# A state older than this, in seconds, says nothing of now.
FRESH = 1.0
_SOON = 30.0


class Cluster(ArmRunner):
    """All ranks of a launch, for :func:`dslint.probe.runner.run_case`. A context manager: at the end all members leave.

    Args:
        backend: ``auto``: nccl when every rank has a GPU of its own, gloo with CUDA tensors when all have one at
            least; ``gloo``: on the CPU.
        patience: seconds in which all members must have come.
        accepts: which experiments the member of this process runs.

    Raises:
        ProbeError: members are missing, or nccl is asked for and GPUs are.
    """

    def __init__(
        self,
        launched: Launched,
        backend: str = "auto",
        python: str = "",
        patience: float = JOIN,
        accepts: Callable[[str], bool] = is_ours,
    ) -> None:
        self.world = launched.world
        self.launcher = launched.launcher
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self.warm_seconds = 0.0
        self.gpus = 0
        self._launched = launched
        self._wanted = backend
        self._python = python
        self._patience = patience
        self._accepts = accepts
        self._flavour = ""
        self._missing: dict[str, str] = {}
        self._arms = 0
        self._sees: set[int] = set()
        self._root = Path()
        self._own: Exception | None = None

    def __enter__(self) -> Cluster:
        self._hub = Hub(self._launched)
        self._member = threading.Thread(target=self._serve, daemon=True)
        self._member.start()
        try:
            self._hub.gather(self._patience)
            self._prepare()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._hub.end()
        self._member.join(20.0)

    def _serve(self) -> None:
        """The member of this process, like all others at the end of a connection."""
        try:
            Member(self._launched, join(self._launched, self._patience), self._python, self._accepts).serve()
        except ProbeError as error:
            self._own = error

    @property
    def missing(self) -> str:
        """The first library that is missing on some host, or empty."""
        return next(iter(self._missing.values()), "")

    @property
    def lost(self) -> str:
        """Why nothing more can be run, or empty."""
        return self._hub.lost

    @property
    def where(self) -> str:
        """``4 ranks on 2 hosts (torchrun)``."""
        hosts = len({hello["machine"] for hello in self._hub.hellos.values()})
        return f"{self.world} ranks on {hosts} host{'s' if hosts > 1 else ''} ({self.launcher})"

    def stop(self, why: str) -> None:
        """End the run soon; for signal handlers."""
        self._hub.stop(why)

    def refuses(self, entry: Entry, ranks: int = 0) -> str:
        """Why an experiment cannot run here; empty when it can."""
        if entry.starts_programs:
            return (
                "a machine without a launcher around it: it starts one, or a shell, itself. Run it with `dslint probe`"
            )
        wanted = self._ranks(entry.experiment, ranks)
        if wanted > self.world:
            return f"{wanted} ranks, the launcher started {self.world}"
        if entry.experiment.one_host and not self._on_one_host(range(wanted)):
            return "one host: its ranks share files or the loopback device. Run it with `dslint probe`"
        return ""

    def backend(self, experiment: Experiment, world: int = 0) -> str:
        """``nccl`` when each rank that takes part has a GPU of its own."""
        if not self._cuda(experiment):
            return "gloo"
        return "nccl" if self._distinct(range(self._ranks(experiment, world))) else "gloo"

    def warm(self, flavour: str) -> None:
        """Have all members import what experiments of this flavour need.

        Raises:
            ProbeError: a library is missing on some host.
        """
        if self._flavour and FLAVOURS.index(flavour) <= FLAVOURS.index(self._flavour):
            return
        if flavour in self._missing:
            raise ProbeError(self._missing[flavour])
        try:
            replies = self._hub.ask({"op": "warm", "flavour": flavour}, range(self.world), START_UP + _SOON)
        except (ProbeError, ServerDied) as error:
            self._missing[flavour] = str(error)
            raise ProbeError(str(error)) from error
        self._flavour = flavour
        self.versions = replies[0]["versions"]
        self.warm_seconds += max(reply["seconds"] for reply in replies.values())
        self.notes = []
        for rank, reply in replies.items():
            other = [f"{k} {v}" for k, v in reply["versions"].items() if v != self.versions.get(k)]
            if other:
                self.notes.append(f"{self._hub.name(rank)} has {', '.join(other)}, rank 0 another version")

    def _server_died(self) -> None:
        """The member has ended its fork server itself."""

    def _run(self, arm: Arm) -> tuple[ArmOutcome, Path]:
        experiment = arm.experiment
        self._arms += 1
        name = f"{self._arms:04d}"
        world = self._ranks(experiment, arm.ranks)
        members = range(world)
        cuda = self._cuda(experiment)
        limit = experiment.limit * (2 if cuda else 1) + (START_UP if self.gpus else 0)
        task = {
            "experiment": arm.module, "fixed": arm.fixed, "params": dict(arm.case.params), "world": world,
            "backend": arm.backend or self.backend(experiment, arm.ranks), "port": _free_port(),
            "deadline": int(limit) + 15, "explain": arm.explain, "local_world": 0,
            "shared": self._shared(name, world),
        }  # fmt: skip
        request = {
            "op": "start", "arm": name, "flavour": experiment.flavour, "cuda": cuda, "task": task, "limit": limit,
            "quiet": GPU_QUIET if cuda else QUIET,
        }  # fmt: skip
        try:
            self._hub.ask(request, members, START_UP + _SOON)
            outcome = self._follow(name, members, limit, arm.explain)
        finally:
            if not self.lost:
                self._hub.ask({"op": "stop"}, members, _SOON)
        return outcome, self._root / "leader" / name

    def _follow(self, name: str, members: range, limit: float, explain: bool) -> ArmOutcome:
        """Until all ranks are done, one has failed and the others had their time, or all that are open stand still."""
        start = time.monotonic()
        failed: float | None = None
        stalled = False
        while not stalled:
            states = self._hub.states(name, members, POLL_LATER)
            now = time.monotonic()
            if failed is None and any(state["bad"] for _, state in states.values()):
                failed = now
            open_ranks = [rank for rank in members if rank not in states or states[rank][1]["open"]]
            if not open_ranks or now - start > limit or (failed is not None and now - failed > GRACE):
                break
            stalled = self._stands_still(name, members, open_ranks, states)
        late = now - start > limit and failed is None
        request = {"op": "finish", "late": late, "stacks": failed is not None, "explain": explain and stalled}
        ends = self._hub.ask(request, members, _SOON)
        return combine(tuple(self._outcome(name, rank, ends[rank]) for rank in members), now - start)

    def _stands_still(
        self, name: str, members: range, open_ranks: list[int], states: dict[int, tuple[float, Message]]
    ) -> bool:
        """Every open rank on every host sleeps now, and its stack stays equal while nobody else gets on either."""
        if not all(rank in states and states[rank][1]["asleep"] and states[rank][0] < FRESH for rank in open_ranks):
            return False
        before = {rank: (states[rank][1]["open"], states[rank][1]["marks"]) for rank in members}
        looks = self._hub.ask({"op": "look"}, open_ranks, _SOON)
        after = self._hub.states(name, members, 0.0)
        same = all((after[rank][1]["open"], after[rank][1]["marks"]) == before[rank] for rank in members)
        marks = all(looks[rank]["marks"] == before[rank][1] for rank in open_ranks)
        return same and marks and all(look["still"] for look in looks.values())

    def _outcome(self, name: str, rank: int, end: Message) -> RankOutcome:
        folder = self._root / "leader" / name / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        if end["recorder"]:
            (folder / "recorder.json").write_text(end["recorder"], encoding="utf-8")
        found: dict[str, Any] = end["outcome"]
        return RankOutcome(
            rank, Kind(found["kind"]), found["value"], found["text"], tuple(found["stack"]), tuple(found["marks"]),
            found["output"],
        )  # fmt: skip

    def _prepare(self) -> None:
        world = range(self.world)
        if self._wanted != "gloo" and all(hello["gpus"] for hello in self._hub.hellos.values()):
            self.gpus = len({self._device(rank) for rank in world})
        if self._wanted == "nccl" and self.gpus < self.world:
            raise ProbeError(f"--backend nccl needs a GPU for each rank: {self.gpus} for {self.world} ranks here")
        # One id for the run on all hosts: the janitor of any member clears its host.
        request = {"op": "prepare", "run": uuid.uuid4().hex, "cuda": self.gpus > 0, "reached": self._hub.reached()}
        self._root = Path(self._hub.ask(request, world, _SOON)[0]["root"])
        token = self._root / "shared" / "token"
        token.parent.mkdir()
        token.write_text(secrets.token_hex(16), encoding="utf-8")
        sees = self._hub.ask({"op": "sees", "path": str(token), "text": token.read_text()}, world, _SOON)
        self._sees = {rank for rank, reply in sees.items() if reply["sees"]}

    def _ranks(self, experiment: Experiment, ranks: int) -> int:
        return ranks or (self.world if experiment.scales else experiment.ranks)

    def _cuda(self, experiment: Experiment) -> bool:
        return self.gpus > 0 and experiment.takes_gpus

    def _device(self, rank: int) -> tuple[str, str]:
        """(machine, GPU) of a rank, as :class:`~dslint.probe.rank.Rank` chooses it."""
        hello = self._hub.hellos[rank]
        local: int = hello["local"]
        return hello["machine"], hello["gpus"][local % len(hello["gpus"])]

    def _distinct(self, ranks: range) -> bool:
        return len({self._device(rank) for rank in ranks}) == len(ranks)

    def _on_one_host(self, ranks: range) -> bool:
        return set(ranks) <= self._sees and len({self._hub.hellos[rank]["machine"] for rank in ranks}) == 1

    def _shared(self, name: str, world: int) -> str:
        if not set(range(world)) <= self._sees:
            return ""
        folder = self._root / "shared" / name
        folder.mkdir()
        return str(folder)


def _free_port() -> int:
    # On every interface: rank 0, which is here, serves the ranks of all hosts at it.
    with socket.create_server(("", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
