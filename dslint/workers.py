"""A process pool that outlives its workers, and workers that do not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1


class Pool(Generic[T, R]):
    """Applies a function to chunks of items in worker processes; results come in the order of the items.

    Args:
        work: a function of a module (workers import it by name) from items to one result each.
        died: the result for an item that kills the worker that has it, twice: in the pool and alone.
        prepare: called in every worker before its first item.
    """

    def __init__(
        self,
        workers: int,
        work: Callable[[Sequence[T]], list[R]],
        died: Callable[[T], R],
        prepare: Callable[[], None],
    ) -> None:
        self._work = work
        self._died = died
        self._prepare = prepare
        self._executor = self._new(workers)
        self._broken = False
        self._running: list[tuple[Sequence[T], Future[list[R]]]] = []

    def submit(self, chunk: Sequence[T]) -> None:
        """Begin a chunk in the background."""
        self._running.append((chunk, self._executor.submit(self._work, chunk)))

    def results(self) -> Iterator[R]:
        """The result of each item, in the order in which the chunks were submitted."""
        for chunk, future in self._running:
            try:
                found = future.result()
            except BrokenProcessPool:
                self._broken = True
                # Somebody killed a worker (the kernel when memory is short), or a file did: which one, and the rest?
                yield from self._one_by_one(chunk)
            else:
                yield from found

    def _one_by_one(self, chunk: Sequence[T]) -> Iterator[R]:
        for item in chunk:
            if self._broken:
                self._executor, self._broken = self._new(1), False
            try:
                found = self._executor.submit(self._work, [item]).result()
            except BrokenProcessPool:
                self._broken = True
                yield self._died(item)
            else:
                yield from found

    def close(self, kill: bool) -> None:
        """End the workers; ``kill`` does not wait for what they are at."""
        if kill:
            # An interrupt that reached the parent alone: a worker would go on for as long as its file takes.
            for process in list((getattr(self._executor, "_processes", None) or {}).values()):
                process.kill()
        self._executor.shutdown(wait=not kill, cancel_futures=True)

    def _new(self, workers: int) -> ProcessPoolExecutor:
        # fork starts in milliseconds and shares what is imported; dslint has no threads when it forks.
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(os.getpid(), self._prepare))


def _begin(parent: int, prepare: Callable[[], None]) -> None:
    # An interrupt reaches the whole group: a worker ends at once and without a word, the parent says the rest.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        # A pool whose parent was killed would wait for work for ever: every worker holds the other end of the pipe.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    prepare()
