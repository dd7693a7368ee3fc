"""Run a program inside an arm (a launcher, bash), and know a program that waits from one that works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dslint.probe.procfs import Activity, descendants
from dslint.probe.rank import die_with_parent

TAIL = 6000


def run(
    argv: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    patience: float,
    quiet: float,
    mark: Callable[[str], None],
) -> dict[str, Any]:
    """Run ``argv`` to its end.

    Args:
        folder: working directory; standard output and error go to files there.
        env: added to the environment; a value of "" removes the variable.
        patience: seconds after which the program is given up (``ended`` is "limit").
        quiet: seconds without any work in the program and its children, and without output, after which it is said to
            wait (``ended`` is "stall").

    Returns:
        ``ended``: "exit" | "signal" | "stall" | "limit"; ``rc``: exit code or None; ``out`` and ``err``: the last
        6,000 characters of both streams.
    """
    own = os.getpid()
    environment = {**os.environ, **env}
    for name, value in env.items():
        if value == "":
            environment.pop(name, None)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if name not in env:
            environment.pop(name, None)
    paths = [os.path.join(folder, f"command.{name}") for name in ("out", "err")]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        child = subprocess.Popen(
            list(argv), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, preexec_fn=lambda: die_with_parent(own),
        )  # fmt: skip
    try:
        ended = _wait(child, paths, patience, quiet, mark)
    finally:
        _end(child)
    texts = [_tail(path) for path in paths]
    code = child.returncode if ended == "exit" else None
    if ended == "exit" and child.returncode < 0:
        ended = "signal"
    return {"ended": ended, "rc": code, "out": texts[0], "err": texts[1]}


def _wait(
    child: subprocess.Popen[bytes], paths: list[str], patience: float, quiet: float, mark: Callable[[str], None]
) -> str:
    start = time.monotonic()
    seen = -1
    activity = Activity(quiet)
    while child.poll() is None:
        time.sleep(0.1)
        now = time.monotonic()
        size = sum(os.path.getsize(path) for path in paths)
        if size != seen:
            activity.restart()
            seen = size
            mark("says something")
        activity.sample([child.pid, *descendants(child.pid)], now)
        if activity.asleep(now):
            return "stall"
        if now - start > patience:
            return "limit"
    return "exit"


def _end(child: subprocess.Popen[bytes]) -> None:
    for pid in [*descendants(child.pid), child.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        text = file.read()[-TAIL:].decode("utf-8", "replace")
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
