"""Judging in a process of its own, within a time: nothing that goes wrong there reaches the command.

That process answers twice: in a moment without the code of scripts, and later with it. The last answer that comes in
time counts. The process that becomes the command loads next to nothing and keeps no child.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO

from dslint.runner.report import Report

if TYPE_CHECKING:
    from dslint.runner.judging import Request

# An answer without the code of scripts is waited for this long, on the slowest of disks.
PATIENCE = 20.0
NO_TIME, DIED = "there was no time", "the process that judges died"
_CHUNK = 1 << 16
_SIZE = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no report, in one line; ``is_usage``: the flags are wrong, so that nothing is to start."""

    message: str
    is_usage: bool = False


Answer = Report | Failure


@dataclass(slots=True)
class _Child:
    """The process that judges, and what it has said: each answer behind its length."""

    pid: int
    pipe: int
    data: bytes = b""
    is_done: bool = False
    answers: list[bytes] = field(default_factory=list)

    def read(self) -> None:
        """Take what has come."""
        chunk = os.read(self.pipe, _CHUNK)
        self.is_done = not chunk
        self.data += chunk
        while len(self.data) >= _SIZE:
            end = _SIZE + int.from_bytes(self.data[:_SIZE], "big")
            if len(self.data) < end:
                break
            self.answers.append(self.data[_SIZE:end])
            self.data = self.data[end:]

    def wait(self, until: float | None, is_enough: Callable[[], bool]) -> None:
        """Read until there is enough, the child ends, or the time is over."""
        while not (self.is_done or is_enough()):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            if select.select([self.pipe], [], [], left)[0]:
                self.read()

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
    child = _start(request, seconds)
    try:
        child.wait(begin + seconds if seconds else None, lambda: False)
        # Whatever the clock says: a job that is not looked at at all has gained nothing.
        child.wait(begin + PATIENCE, lambda: bool(child.answers))
        return _last(child)
    finally:
        child.end()


def _last(child: _Child) -> Answer:
    """The last report of the child; where there is none, why."""
    answers: list[Answer] = [pickle.loads(data) for data in child.answers]
    reports = [answer for answer in answers if isinstance(answer, Report)]
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    if not reports:
        return failures[0] if failures else Failure(DIED if child.is_done else f"no answer in {PATIENCE:g} seconds")
    why = failures[0].message if failures else DIED if child.is_done else NO_TIME
    lines = (f"not judged, {why}: the code of {path}" for path in reports[-1].unjudged)
    return replace(reports[-1], problems=(*reports[-1].problems, *lines))


def _start(request: Request, seconds: float) -> _Child:
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return _Child(pid, out)
    try:
        _be_child(request, seconds, into)
    finally:
        os._exit(1)


def _be_child(request: Request, seconds: float, into: int) -> None:
    """Judge, and write the answers to the pipe; standard input and output are those of the command to come."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if seconds:
        signal.alarm(int(seconds + PATIENCE) + 5)  # nobody may be there any more to end it
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1) if os.environ.get("DSLINT_DEBUG") else (0, 1, 2):
        if into != stream:
            os.dup2(nothing, stream)
    with os.fdopen(into, "wb") as out:
        try:
            _answer(request, seconds, out)
        except BaseException as error:
            if os.environ.get("DSLINT_DEBUG"):
                import traceback

                traceback.print_exc()
            _write(Failure(" ".join(f"internal error: {type(error).__name__}: {error}".split())), out)
    os._exit(0)


def _answer(request: Request, seconds: float, out: BinaryIO) -> None:
    from dslint.runner.judging import UnusableSettings, judge

    try:
        if seconds:
            quick = judge(request, scripts=False)
            _write(quick, out)
            if not quick.unjudged:
                return
        _write(judge(request, scripts=True), out)
    except UnusableSettings as error:
        _write(Failure(str(error), error.is_usage), out)


def _write(answer: Answer, out: BinaryIO) -> None:
    data = pickle.dumps(answer)
    out.write(len(data).to_bytes(_SIZE, "big") + data)
    out.flush()
