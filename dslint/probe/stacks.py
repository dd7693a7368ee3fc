"""Reads the stacks that ``faulthandler`` writes, and says where a rank waits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_HEAD = re.compile(r"^(?:Current thread|Thread) 0x")
# Where a rank that waits for others stands: in a collective, in a rendezvous, in backward (DDP's hooks), behind a lock
# file, or for a program that it started.
_WAITS = re.compile(
    r"torch/distributed/|torch/autograd/|torch/nn/parallel/|torch/utils/file_baton|deepspeed/|accelerate/|subprocess\.py"
    r"|multiprocessing/|torch/_tensor\.py|torch/utils/data/"
)
_OWN = re.compile(r"dslint/probe/(?:rank|forkserver|explain)\.py$")


class Stack(tuple[str, ...]):
    """Frames of the main thread, innermost first: ``function (file:line)``."""

    waits: bool = False


def parse(text: str) -> list[Stack]:
    """The stack of the main thread of each dump in a file of dumps, oldest first.

    ``faulthandler`` prints every thread; the main thread is the last of a dump.
    """
    dumps: list[Stack] = []
    current: list[tuple[str, str, str]] = []
    threads: list[list[tuple[str, str, str]]] = []
    for line in [*text.splitlines(), "Current thread 0x"]:
        if _HEAD.match(line):
            if current:
                threads.append(current)
                if _is_main(current):
                    dumps.append(_stack(current))
            current = []
            continue
        frame = _FRAME.match(line)
        if frame:
            current.append((frame["name"], frame["file"], frame["line"]))
    return dumps


def _is_main(frames: Sequence[tuple[str, str, str]]) -> bool:
    # Only the main thread of a rank runs ``live``.
    return any(name == "live" and _OWN.search(file) for name, file, _ in frames)


def _stack(frames: Sequence[tuple[str, str, str]]) -> Stack:
    shown = []
    waits = False
    for number, (name, file, line) in enumerate(frames):
        if _OWN.search(file):
            break
        shown.append(f"{name} ({os.path.basename(file)}:{line})")
        # The innermost frames decide: a rank that sleeps in code of the experiment does not wait for anybody.
        waits = waits or (number < 6 and bool(_WAITS.search(file)))
    stack = Stack(shown)
    stack.waits = waits
    return stack


def place(stack: Sequence[str]) -> str:
    """The frame to name: the innermost one that is no wrapper."""
    for frame in stack:
        if not frame.startswith(
            ("wrapper ", "_fn ", "log_wrapper ", "inner ", "wrapped_fn ", "decorate_context ", "<lambda> ")
        ):
            return frame
    return stack[0] if stack else "an unknown place"
