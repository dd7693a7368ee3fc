"""The fork server: imports the heavy libraries once, then forks the ranks of every arm.

A cold process needs 2 s for torch and up to 10 s for DeepSpeed and transformers; a fork of a warm one 0.1 s. The
server only imports: it never makes a process group, runs an operator or touches CUDA, which could not follow a fork.
Requests and replies are lines of JSON on standard input and output. When the supervisor goes away, input ends, and the
server kills its ranks and exits.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module, metadata
from typing import Any

from dslint.probe.environment import bootstrap
from dslint.probe.rank import Task, live

_WARM = {
    "plain": (),
    "torch": ("torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch._dynamo"),
    "deepspeed": ("deepspeed", "deepspeed.runtime.engine", "deepspeed.runtime.zero.muon.muon_optimizer",
                  "deepspeed.runtime.zero.stage3", "deepspeed.runtime.zero.stage_1_and_2"),
    "transformers": ("transformers", "transformers.trainer", "transformers.models.llama.modeling_llama", "accelerate",
                     "transformers.integrations.deepspeed"),
}  # fmt: skip
_OPTIONAL = {"deepspeed.runtime.zero.muon.muon_optimizer", "torch._dynamo"}


def warm(flavour: str) -> dict[str, Any]:
    """Import what experiments of this flavour need, the simpler flavours included."""
    start = time.monotonic()
    missing = ""
    for name in ("torch", "deepspeed", "transformers"):
        if flavour == "plain":
            break
        for module in _WARM[name]:
            try:
                import_module(module)
            except ImportError as error:
                if module not in _OPTIONAL:
                    missing = missing or f"{type(error).__name__}: {error}"
        if name == "deepspeed" and not missing:
            _no_compiler()
        if name == flavour:
            break
    # Objects of the libraries never die: without this each fork copies their pages as the collector touches them.
    gc.collect()
    gc.freeze()
    return {"seconds": time.monotonic() - start, "missing": missing, "versions": versions()}


def _no_compiler() -> None:
    # An experiment must not start a JIT build, whose left-over lock would make later ones wait for ever.
    ops = import_module("deepspeed.ops")
    getattr(ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False


def versions() -> dict[str, str]:
    """Versions of the libraries that verdicts depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "deepspeed", "transformers", "accelerate"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Server:
    """Starts, watches and stops the ranks of arms."""

    def __init__(self) -> None:
        self.arms: dict[str, list[int]] = {}
        self.ended: dict[int, int] = {}

    def start(self, arm: str, tasks: list[dict[str, Any]], spawn: bool) -> dict[str, Any]:
        """Start the ranks of an arm; returns their process ids in the order of ranks."""
        own = os.getpid()
        pids = [self._spawn(task, own) if spawn else self._fork(task, own) for task in tasks]
        self.arms[arm] = pids
        return {"pids": pids}

    def _fork(self, task: dict[str, Any], own: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            live(Task(**task), own)
        finally:
            os._exit(4)

    def _spawn(self, task: dict[str, Any], own: int) -> int:
        child = subprocess.Popen([*bootstrap("", "dslint.probe.rank"), str(own)], stdin=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(json.dumps(task).encode())
        child.stdin.close()
        child.returncode = 0  # reaped by ``poll`` below, not by subprocess
        return child.pid

    def poll(self, arm: str) -> dict[str, Any]:
        """The wait status of the ranks that ended, by process id."""
        for pid in self.arms.get(arm, ()):
            self._reap(pid, os.WNOHANG)
        return {"ended": {str(pid): self.ended[pid] for pid in self.arms.get(arm, ()) if pid in self.ended}}

    def _reap(self, pid: int, flags: int) -> None:
        if pid in self.ended:
            return
        try:
            done, status = os.waitpid(pid, flags)
        except ChildProcessError:
            done, status = pid, 0
        if done:
            self.ended[pid] = status

    def stop(self, arm: str) -> dict[str, Any]:
        """Kill the ranks with everything in their process groups, and reap them."""
        pids = self.arms.pop(arm, [])
        for pid in pids:
            for kill in (os.killpg, os.kill):
                try:
                    kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        for pid in pids:
            self._reap(pid, 0)
            self.ended.pop(pid, None)
        return {"stopped": len(pids)}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request."""
        what = request.pop("op")
        if what == "warm":
            return warm(request["flavour"])
        if what == "start":
            return self.start(**request)
        return self.poll(**request) if what == "poll" else self.stop(**request)


def main() -> None:
    """Serve until standard input ends."""
    # Whatever a library prints while it is imported must not end up between replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    os.set_inheritable(replies.fileno(), False)
    server = Server()
    try:
        for line in sys.stdin:
            replies.write(json.dumps(server.answer(json.loads(line))) + "\n")
    finally:
        for arm in list(server.arms):
            server.stop(arm)
