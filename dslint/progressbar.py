"""Progress on standard error, for a person who waits: stage, files, time left.

It appears after two seconds, on a terminal only. No thread draws it (worker processes are forked from this one), so it
moves when a stage reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE, _PAUSE = 2.0, 0.1


@contextmanager
def shown_progress(quiet: bool, stream: IO[str] | None = None) -> Iterator[None]:
    """Show how far a long run is; nothing when quiet, piped, or on a terminal that cannot move the cursor."""
    import os

    out = stream if stream is not None else sys.stderr
    if quiet or not _is_terminal(out) or os.environ.get("TERM") == "dumb":
        yield
        return
    from dslint.core.progress import listening

    bar = Bar(out)
    try:
        with listening(bar):
            yield
    finally:
        bar.close()


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


class Bar:
    """Listens to a run, and draws once it has taken ``PATIENCE`` seconds. ``clock`` is for tests."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = self._drawn = clock()
        self._progress: Progress | None = None
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take a report of the run."""
        now = self._clock()
        if now - self._start < PATIENCE:
            return
        if self._progress is None:
            self._progress = _made(self._stream)
            self._progress.start()
        elif stage == self._stage and now - self._drawn < _PAUSE and done != total:
            return
        if stage != self._stage:
            # A task a stage: the time left is that of the stage.
            for task in list(self._progress.task_ids):
                self._progress.remove_task(task)
            self._progress.add_task(stage, total=total or None)
            self._stage = stage
        (task,) = self._progress.task_ids
        self._progress.update(task, completed=done, total=total or None)
        self._progress.refresh()
        self._drawn = now

    def close(self) -> None:
        """Leave no trace on the terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _made(stream: IO[str]) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
        auto_refresh=False,
    )
