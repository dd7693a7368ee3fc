"""The launcher of DeepSpeed, run inside the rank: its runner in this process, its node launcher in a fork of it.

Programs that reach other hosts (ssh, pdsh) are recorders that write down their arguments: no host is reached.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from typing import Any

from dslint.probe.experiment import Json, RankApi
from dslint.probe.parts.launcher import Pulse, clean, notes, told, write_script

NODE_LAUNCHER = "deepspeed.launcher.launch"


def deepspeed(rank: RankApi, arguments: list[str], more: str = "") -> list[dict[str, Json]]:
    """Run ``deepspeed ARGUMENTS`` to its end; ``arguments`` name the script ``train.py``, ``more`` goes into it.

    Returns:
        The notes of the started processes by rank; with several hosts one note for each process that the command for
        pdsh stands for, of host and rank alone.

    Raises:
        RuntimeError: it refuses its arguments, or a process of it fails.
        Whatever else the launcher raises.
    """
    from importlib import import_module

    clean()
    write_script(more)
    _programs()
    runner: Any = import_module("deepspeed.launcher.runner")
    runner.subprocess = _Processes()
    with Pulse(rank, linger=3.0):  # the node launcher looks after its processes once a second
        told("deepspeed", lambda: runner.main(arguments))
    return _of_hosts() or notes()


class _Processes:
    """``subprocess`` as the runner sees it: its node launcher is forked, everything else is run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], env: dict[str, str]) -> Any:
        if command[1:4] != ["-u", "-m", NODE_LAUNCHER]:
            return subprocess.Popen(command, env=env)
        return _Fork(command[4:], env)


class _Fork:
    """``python -m deepspeed.launcher.launch`` in a fork of this process, which has imported DeepSpeed already."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.returncode = 0
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            try:
                _be_node_launcher(parent, words, environment)
            finally:
                os._exit(1)

    def wait(self) -> None:
        """Wait for its end."""
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _be_node_launcher(parent: int, words: list[str], environment: dict[str, str]) -> None:
    import ctypes
    import runpy
    import traceback

    ctypes.CDLL(None).prctl(1, 9)  # dies with its parent
    if os.getppid() != parent:
        return
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [NODE_LAUNCHER, *words]
    code = 0
    try:
        runpy.run_module(NODE_LAUNCHER, run_name="__main__")
    except SystemExit as over:
        code = over.code if isinstance(over.code, int) else int(over.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _programs() -> None:
    """An ssh that names an address, and a pdsh that writes its arguments down, in front of the PATH."""
    folder = os.path.abspath("programs")
    os.makedirs(folder, exist_ok=True)
    for name, does in (("ssh", "echo 127.0.0.1"), ("pdsh", f"printf '%s\\0' \"$@\" > '{folder}/pdsh.args'")):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{does}\n")
        os.chmod(path, 0o700)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def _of_hosts() -> list[dict[str, Json]]:
    """What the command for pdsh says: one note for each process on each host."""
    try:
        with open(os.path.join("programs", "pdsh.args"), encoding="utf-8") as file:
            words = " ".join(file.read().split("\0")).split()
    except OSError:
        return []
    text = next(word.partition("=")[2] for word in words if word.startswith("--world_info="))
    world: dict[str, list[int]] = json.loads(base64.urlsafe_b64decode(text))
    processes = [(host, slot) for host, slots in world.items() for slot in slots]
    size = str(len(processes))
    return [{"RANK": str(n), "WORLD_SIZE": size, "host": host, "argv": []} for n, (host, _) in enumerate(processes)]
