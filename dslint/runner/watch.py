"""Judging in processes of their own, within a time: nothing that goes wrong there reaches the command.

Two processes work at the same time: one without the code of scripts, which has its answer in a moment, one with it. The
fuller answer counts if it comes in time. The process that becomes the command loads next to nothing and keeps no child.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.runner.report import Report

if TYPE_CHECKING:
    from dslint.runner.judging import Request

# An answer without the code of scripts is waited for this long, on the slowest of disks.
PATIENCE = 20.0
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no report, in one line; ``is_usage``: the flags are wrong, so that nothing is to start."""

    message: str
    is_usage: bool = False


Answer = Report | Failure


@dataclass(slots=True)
class _Child:
    pid: int
    pipe: int
    data: bytes = b""
    is_done: bool = False

    def read(self) -> None:
        """Take what has come; the end of it is the end of the child."""
        chunk = os.read(self.pipe, _CHUNK)
        self.data += chunk
        self.is_done = not chunk

    @property
    def has_answered(self) -> bool:
        """It has said something before its end."""
        return self.is_done and bool(self.data)

    def answer(self) -> Answer | None:
        """What it has said, ``None`` if it died before."""
        if not self.has_answered:
            return None
        found = pickle.loads(self.data)
        return found if isinstance(found, Report | Failure) else None

    def end(self) -> None:
        """End it where it has not ended, and let nothing of it stay."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


def judged(request: Request, seconds: float, begin: float | None = None) -> Answer:
    """The report on a command: with the code of scripts if that takes no more than ``seconds`` (0: however long).

    ``begin`` is when the time began (``time.monotonic``).
    """
    begin = time.monotonic() if begin is None else begin
    children: list[_Child] = []
    try:
        if not seconds:
            children = [_start(request, True)]
            _wait(children, None, lambda: children[0].is_done)
            return children[0].answer() or Failure("the process that judges died")
        children = [_start(request, True), _start(request, False)]
        full, quick = children
        _wait(children, begin + seconds, lambda: full.is_done)
        # Whatever the clock says: a job that is not looked at at all has gained nothing.
        _wait(children, begin + PATIENCE, lambda: full.has_answered or quick.has_answered)
        # The fuller one may have come while the other was waited for.
        found = full.answer() or quick.answer()
        died = full.is_done and quick.is_done
        return found or Failure("the process that judges died" if died else f"no answer in {PATIENCE:g} seconds")
    finally:
        for child in children:
            child.end()


def _wait(children: list[_Child], until: float | None, is_enough: Callable[[], bool]) -> None:
    while not is_enough():
        open_pipes = {child.pipe: child for child in children if not child.is_done}
        left = None if until is None else until - time.monotonic()
        if not open_pipes or (left is not None and left <= 0):
            return
        ready, _, _ = select.select(list(open_pipes), [], [], left)
        for pipe in ready:
            open_pipes[pipe].read()


def _start(request: Request, scripts: bool) -> _Child:
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return _Child(pid, out)
    try:
        _be_child(request, scripts, into)
    finally:
        os._exit(1)


def _be_child(request: Request, scripts: bool, into: int) -> None:
    """Judge, and write the answer to the pipe; standard input and output are those of the command to come."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.alarm(0 if scripts else int(PATIENCE) + 5)  # nobody may be there any more to end it
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2) if not os.environ.get("DSLINT_DEBUG") else (0, 1):
        if into != stream:
            os.dup2(nothing, stream)
    answer: Answer
    try:
        from dslint.runner.judging import UnusableSettings, judge

        try:
            answer = judge(request, scripts=scripts)
        except UnusableSettings as error:
            answer = Failure(str(error), error.is_usage)
    except BaseException as error:
        if os.environ.get("DSLINT_DEBUG"):
            import traceback

            traceback.print_exc()
        answer = Failure(" ".join(f"internal error: {type(error).__name__}: {error}".split()))
    with os.fdopen(into, "wb") as out:
        pickle.dump(answer, out)
    os._exit(0)
