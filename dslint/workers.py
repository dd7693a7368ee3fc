"""A process pool that outlives its workers, and workers that do not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from dslint.packing import pack, unpack

T = TypeVar("T")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1


# What a worker judges: given at its start, so that a task is two numbers. Tasks that carry the texts fill the pipe to
# the workers, and on Python 3.10 a pool whose worker dies while the pipe is full waits for ever (CPython issue 94777).
_chunks: Sequence[Sequence[Any]] = ()


class Pool(Generic[T, R]):
    """Applies a function to chunks of items in worker processes; results come in the order of the items.

    Args:
        workers: number of processes.
        chunks: what there is to do; all of it begins in the background at once.
        work: a function of a module (workers import it by name) from items to one result each, packed where the
            other end needs more than the bytes to unpack it.
        died: the result for an item that kills the worker that has it, twice: in the pool and alone.
        prepare: called in every worker before its first item.
        unpack: from the bytes that a worker sends to the results of a chunk.
    """

    def __init__(
        self,
        workers: int,
        chunks: Sequence[Sequence[T]],
        work: Callable[[Sequence[T]], list[R] | bytes],
        died: Callable[[T], R],
        prepare: Callable[[], None],
        unpack: Callable[[bytes], list[R]] = unpack,
    ) -> None:
        self._chunks = chunks
        self._work = work
        self._died = died
        self._prepare = prepare
        self._unpack = unpack
        self._executor = self._new(workers)
        self._broken = False
        self._running = [self._submit(number) for number in range(len(chunks))]

    def _submit(self, number: int) -> Future[bytes]:
        try:
            return self._executor.submit(_apply, self._work, number, None)
        except BrokenProcessPool as error:
            # A worker died before it had anything to do.
            lost: Future[bytes] = Future()
            lost.set_exception(error)
            return lost

    def results(self) -> Iterator[R]:
        """The result of each item, in the order of the chunks; each is given once."""
        for number in range(len(self._running)):
            try:
                found = self._result(self._running[number])
            except BrokenProcessPool:
                self._broken = True
                # Somebody killed a worker (the kernel when memory is short), or a file did: which one, and the rest?
                yield from self._one_by_one(number)
            else:
                # The bytes of what is read are not needed any more.
                self._running[number] = Future()
                yield from found

    def _result(self, future: Future[bytes]) -> list[R]:
        return self._unpack(future.result())

    def _one_by_one(self, number: int) -> Iterator[R]:
        for at, item in enumerate(self._chunks[number]):
            if self._broken:
                self._executor, self._broken = self._new(1), False
            try:
                found = self._result(self._executor.submit(_apply, self._work, number, at))
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
        context = multiprocessing.get_context("fork" if can_fork() else "spawn")
        given = (os.getpid(), self._prepare, self._chunks)
        return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=given)


def can_fork() -> bool:
    """Workers begin with all that this process has read; elsewhere they get it through a pipe."""
    return "fork" in multiprocessing.get_all_start_methods()


def _begin(parent: int, prepare: Callable[[], None], chunks: Sequence[Sequence[Any]]) -> None:
    global _chunks
    # An interrupt reaches the whole group: a worker ends at once and without a word, the parent says the rest.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        # A pool whose parent was killed would wait for work for ever: every worker holds the other end of the pipe.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    _chunks = chunks
    prepare()


def _apply(work: Callable[[Sequence[Any]], list[Any] | bytes], chunk: int, item: int | None) -> bytes:
    found = work(_chunks[chunk] if item is None else [_chunks[chunk][item]])
    return found if isinstance(found, bytes) else pack(found)
