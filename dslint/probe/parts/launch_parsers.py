"""A launcher up to the start of its processes: its own parser, its own checks, and what it would start.

The ``main`` of the real launcher runs in this process; only the function that starts processes is replaced by one that
writes down what it is given. An experiment about a launcher's errors needs no more::

    def _run(rank, words):
        from dslint.probe.parts.launch_parsers import launched

        return [launched("torchrun", words)]      # or "launch", "deepspeed", "accelerate"

What the launcher refuses comes out as the exception that it raises. Where it ends with ``SystemExit`` (argparse), a
``RuntimeError`` says what it printed: ``torchrun ends with exit code 2: torchrun: error: unrecognized arguments:
--num_gpus``; so an expectation reads ``Expect((Kind.RAISE,), r"unrecognized arguments: --num_gpus")``. Several command
lines may be tried in one arm: each call is free of what earlier ones have set. Files that the words name (a hostfile, a
config of accelerate) must have been written into the current folder by the arm; the script need not exist.

Use the flavour ``deepspeed`` for ``deepspeed``, ``torch`` for the others; no process is started, no port is opened and
no host is reached.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dslint.probe.experiment import Json

# What launchers read: a call sees only what it is given.
_READ = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "LOCAL_SIZE", "PYTHON_EXEC")
_FAMILIES = ("PET_", "ACCELERATE_", "TORCHELASTIC_", "MASTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "FSDP_")


def launched(
    launcher: str, words: list[str], environment: dict[str, str] | None = None, devices: int = 8
) -> dict[str, Json]:
    """What ``LAUNCHER WORDS`` would start.

    Args:
        launcher: ``torchrun``, ``launch`` (``python -m torch.distributed.launch``), ``deepspeed``, ``accelerate``
            (``accelerate launch``).
        words: the words after the launcher's name.
        environment: variables that the command sees, beside those of this process that no launcher reads.
        devices: how many GPUs the launcher finds on this machine; 0: none.

    Returns:
        ``starts``: ``torchrun``, ``deepspeed`` (its node launcher on this machine), ``hosts`` (a program that reaches
        others) or ``python``; ``nodes``, ``per_node`` and ``world`` as far as this machine decides them; ``command``:
        the words of one process, or of the program that reaches the hosts; ``environment``: what the launcher has set
        for them; for torchrun ``node_rank``, ``backend`` and ``endpoint`` of the rendezvous.

    Raises:
        RuntimeError: it refuses its arguments; with what it printed.
        Whatever else the launcher raises.
    """
    import sys

    from dslint.probe.parts.launcher import told

    found: dict[str, Json] = {}
    arguments, name = sys.argv, {"launch": "torch.distributed.launch"}.get(launcher, launcher)
    with _only(environment or {}), _gpus(devices):
        try:
            if launcher == "deepspeed":
                told(name, lambda: _deepspeed(words, found, devices))
            elif launcher == "accelerate":
                told(name, lambda: _accelerate(words, found, devices))
            else:
                told(name, lambda: _torchrun(launcher, words, found))
        finally:
            sys.argv = arguments
    return found


@contextmanager
def _gpus(count: int) -> Iterator[None]:
    """So many GPUs, as far as launchers ask for them: they count and touch none."""
    from types import SimpleNamespace

    import torch

    stand_ins: list[tuple[Any, str, Any]] = [
        (torch.cuda, "is_available", lambda: count > 0),
        (torch.cuda, "device_count", lambda: count),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: count > 0),
    ]
    if hasattr(torch, "accelerator") and count:
        stand_ins += [
            (torch.accelerator, "is_available", lambda *_, **__: True),
            (torch.accelerator, "device_count", lambda: count),
            (torch.accelerator, "current_accelerator", lambda *_, **__: SimpleNamespace(type="cuda")),
        ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in stand_ins]
    for owner, name, value in stand_ins:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


@contextmanager
def _only(environment: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in before:
        if name in _READ or name.startswith(_FAMILIES):
            del os.environ[name]
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _torchrun(module: str, words: list[str], found: dict[str, Json]) -> None:
    from importlib import import_module

    with _no_agent(found):
        import_module(f"torch.distributed.{'run' if module == 'torchrun' else module}").main(words)


@contextmanager
def _no_agent(found: dict[str, Json]) -> Iterator[None]:
    """torchrun without its agent; the rendezvous is made as far as it reads its settings."""
    import torch.distributed.run as run

    def elastic_launch(config: Any, entrypoint: Any) -> Any:
        def start(*arguments: Any) -> None:
            _read_endpoint(config)
            found.update(
                starts="torchrun",
                nodes=config.max_nodes if config.max_nodes == config.min_nodes else None,
                per_node=config.nproc_per_node,
                node_rank=config.rdzv_configs.get("rank") if config.rdzv_backend == "static" else None,
                backend=config.rdzv_backend,
                endpoint=config.rdzv_endpoint,
                command=[entrypoint if isinstance(entrypoint, str) else "", *map(str, arguments)],
                environment={name: value for name, value in os.environ.items() if name.startswith(_FAMILIES)},
            )
            found["world"] = found["nodes"] * found["per_node"] if found["nodes"] else None

        return start

    kept, run.elastic_launch = run.elastic_launch, elastic_launch
    try:
        yield
    finally:
        run.elastic_launch = kept


def _read_endpoint(config: Any) -> None:
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    if config.rdzv_backend == "static":
        parse_rendezvous_endpoint(config.rdzv_endpoint.strip(), default_port=-1)


class _Recorder:
    """``subprocess`` for a launcher: notes the command that it would run."""

    def __init__(self, found: dict[str, Json]) -> None:
        self._found = found
        self.returncode = 0
        self.pid = 0

    def __getattr__(self, name: str) -> Any:
        import subprocess

        return getattr(subprocess, name)

    def Popen(self, command: list[str], env: dict[str, str], **_: Any) -> _Recorder:
        self._found["command"] = list(map(str, command))
        own = {name: value for name, value in env.items() if os.environ.get(name) != value}
        self._found["environment"] = own
        return self

    def check_call(self, command: list[str], **_: Any) -> int:
        del command
        return 0

    def check_output(self, command: list[str], **_: Any) -> bytes:
        del command
        return b"10.0.0.1 \n"

    def wait(self) -> int:
        return 0

    def poll(self) -> int:
        return 0


def _deepspeed(words: list[str], found: dict[str, Json], devices: int) -> None:
    import signal
    import sys
    import time
    from importlib import import_module
    from types import SimpleNamespace

    runner: Any = import_module("deepspeed.launcher.runner")
    hosts: Any = import_module("deepspeed.launcher.multinode_runner")
    node: Any = import_module("deepspeed.launcher.launch")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    kept = runner.subprocess, node.subprocess, node.time, hosts.shutil, runner.get_accelerator
    runner.subprocess, node.subprocess = _Recorder(found), _Processes(found)
    node.time = SimpleNamespace(sleep=lambda _: None, strftime=time.strftime, localtime=time.localtime)
    # A program that reaches hosts is taken for installed.
    hosts.shutil = SimpleNamespace(which=lambda name: name)
    runner.get_accelerator = lambda: _Accelerator(kept[4](), devices)
    try:
        runner.main(words)
        command = found["command"]
        if command[1:4] != ["-u", "-m", "deepspeed.launcher.launch"]:
            found["starts"] = "hosts"
            _hosts(command, found)
            return
        sys.argv = ["deepspeed.launcher.launch", *command[4:]]
        node.main()
        found["starts"] = "deepspeed"
    finally:
        runner.subprocess, node.subprocess, node.time, hosts.shutil, runner.get_accelerator = kept
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Accelerator:
    """The accelerator that DeepSpeed has found, with another number of devices."""

    def __init__(self, real: Any, count: int) -> None:
        self._real = real
        self._count = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def device_count(self) -> int:
        return self._count


class _Processes(_Recorder):
    """``subprocess`` for the node launcher, which starts one process a device."""

    def Popen(self, command: list[str], env: dict[str, str], **more: Any) -> _Recorder:
        del more
        self._found["command"] = list(map(str, command))
        names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
        self._found["environment"] = {name: env[name] for name in names if name in env}
        self._found["nodes"] = int(env["CROSS_SIZE"])
        self._found["per_node"] = int(env["LOCAL_SIZE"])
        self._found["world"] = int(env["WORLD_SIZE"])
        return self


def _hosts(command: list[str], found: dict[str, Json]) -> None:
    """The world that the command for the hosts carries, where it does."""
    text = next((w.partition("=")[2] for part in command for w in part.split() if "--world_info=" in w), "")
    if text:
        world: dict[str, list[int]] = json.loads(base64.urlsafe_b64decode(text.strip("'\"")))
        sizes = {len(slots) for slots in world.values()}
        found["nodes"] = len(world)
        found["per_node"] = sizes.pop() if len(sizes) == 1 else None
        found["world"] = sum(map(len, world.values()))
        found["hosts"] = world


def _accelerate(words: list[str], found: dict[str, Json], devices: int) -> None:
    from importlib import import_module

    launch: Any = import_module("accelerate.commands.launch")
    kept = launch.subprocess
    launch.subprocess = _Recorder(found)
    try:
        with _no_agent(found):
            launch.launch_command(launch.launch_command_parser().parse_args(words))
    finally:
        launch.subprocess = kept
    if found.get("starts") == "torchrun":
        return
    if found["command"][:1] == ["deepspeed"]:  # several nodes with DeepSpeed
        environment = found["environment"]
        _deepspeed(found["command"][1:], found, devices)
        found["environment"] = {**environment, **found["environment"]}
        return
    found.update(starts="python", nodes=1, per_node=1, world=1)
