"""A process pool that outlives its workers, and workers that do not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, Protocol, TypeVar

from dslint.engine.packing import pack, unpack

T = TypeVar("T")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1
# Seconds for the thread of a pool to see that its workers are dead.
_PATIENCE = 2


# What a worker judges: given at its start, so that a task is two numbers. Tasks that carry the texts fill the pipe to
# the workers, and on Python 3.10 a pool whose worker dies while the pipe is full waits for ever (CPython issue 94777).
_chunks: Sequence[Sequence[Any]] = ()
# Where a worker leaves its results: each chunk has its place in a file without a name, of which only the parts that are
# written take memory. What travels back through the pipe is a number, in one write: of a long message a worker that is
# killed may send half, and who reads the pipe would wait for the other half for ever.
_results = -1
_PLACE = 1 << 26


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
        self._results = _nameless() if can_fork() else -1
        self._executor = self._first = self._new(workers)
        self._broken = False
        self._running = [self._submit(number) for number in range(len(chunks))]

    def _submit(self, number: int) -> Future[bytes | int]:
        try:
            return self._executor.submit(_apply, self._work, number, None)
        except BrokenProcessPool as error:
            # A worker died before it had anything to do.
            lost: Future[bytes | int] = Future()
            lost.set_exception(error)
            return lost

    def results(self) -> Iterator[R]:
        """The result of each item, in the order of the chunks; each is given once."""
        for number in range(len(self._running)):
            try:
                found = self._result(number, self._running[number])
            except BrokenProcessPool:
                # Of the first pool: one that came after it is none the worse.
                self._broken = self._broken or self._executor is self._first
                # Somebody killed a worker (the kernel when memory is short), or a file did: which one, and the rest?
                yield from self._one_by_one(number)
            else:
                # The bytes of what is read are not needed any more.
                self._running[number] = Future()
                yield from found

    def _result(self, number: int, future: Future[bytes | int]) -> list[R]:
        said = future.result()
        return self._unpack(_left(self._results, number, said) if isinstance(said, int) else said)

    def _one_by_one(self, number: int) -> Iterator[R]:
        for at, item in enumerate(self._chunks[number]):
            if self._broken:
                # With its thread: a fork beside a thread may inherit a lock that nobody opens, and wait for ever.
                self._executor.shutdown()
                self._executor, self._broken = self._new(1), False
            try:
                found = self._result(number, self._executor.submit(_apply, self._work, number, at))
            except BrokenProcessPool:
                self._broken = True
                yield self._died(item)
            else:
                yield from found

    def close(self, kill: bool) -> None:
        """End the workers; ``kill`` does not wait for what they are at."""
        if self._results >= 0:
            os.close(self._results)
            self._results = -1
        if not kill:
            self._executor.shutdown(cancel_futures=True)
            return
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        thread = getattr(self._executor, "_executor_manager_thread", None)
        self._executor.shutdown(wait=False, cancel_futures=True)
        # An interrupt that reached the parent alone: a worker would go on for as long as its file takes.
        for process in processes:
            process.kill()
        if thread is not None:
            # Else it closes its pipe while the exit of Python writes to it, which prints a traceback.
            thread.join(_PATIENCE)

    def _new(self, workers: int) -> ProcessPoolExecutor:
        # fork starts in milliseconds and shares what is imported; dslint has no threads when it forks.
        context = multiprocessing.get_context("fork" if can_fork() else "spawn")
        given = (os.getpid(), self._prepare, self._chunks, self._results)
        return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=given)


class _File(Protocol):
    @property
    def raw(self) -> bytes:
        """What stands in it."""


F = TypeVar("F", bound=_File)


def chunks_of(files: Iterable[F], size: int) -> Iterator[list[F]]:
    """What a worker takes at a time: files in their order, until they have ``size`` bytes."""
    chunk: list[F] = []
    total = 0
    for file in files:
        chunk.append(file)
        total += len(file.raw)
        if total >= size:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def can_fork() -> bool:
    """Workers begin with all that this process has read; elsewhere they get it through a pipe."""
    return "fork" in multiprocessing.get_all_start_methods()


def _nameless() -> int:
    """A file that workers inherit, -1 where there is no room for one."""
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("dslint")
        import tempfile

        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return -1


def _leave(file: int, chunk: int, packed: bytes) -> int:
    done = 0
    while done < len(packed):
        done += os.pwrite(file, packed[done:], chunk * _PLACE + done)
    return done


def _left(file: int, chunk: int, size: int) -> bytes:
    parts: list[bytes] = []
    done = 0
    while done < size:
        parts.append(os.pread(file, size - done, chunk * _PLACE + done))
        done += len(parts[-1]) or size
    return b"".join(parts)


def _begin(parent: int, prepare: Callable[[], None], chunks: Sequence[Sequence[Any]], results: int) -> None:
    global _chunks, _results
    # An interrupt reaches the whole group: a worker ends at once and without a word, the parent says the rest.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        # A pool whose parent was killed would wait for work for ever: every worker holds the other end of the pipe.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    _chunks, _results = chunks, results
    prepare()


def _apply(work: Callable[[Sequence[Any]], list[Any] | bytes], chunk: int, item: int | None) -> bytes | int:
    found = work(_chunks[chunk] if item is None else [_chunks[chunk][item]])
    packed = found if isinstance(found, bytes) else pack(found)
    if _results < 0 or len(packed) > _PLACE:
        return packed
    try:
        return _leave(_results, chunk, packed)
    except OSError:
        return packed  # no room, or a limit on the size of files
