"""Runs a program on simulated ranks: `run({"main.py": text})` tells what each rank did, and how the job ended."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .imports import Importer
from .instrument import Sites, instrumented
from .ranks import EventId, Rank, World
from .record import Budget, Recorder
from .surroundings import Surroundings, patched


@dataclass(frozen=True)
class Job:
    """How a program is launched. `instrument` off: the program as it is, for comparison.

    `own_sets`: strings in sets have an order of their own on each rank (instrumented runs only).
    """

    entry: str = "main.py"
    size: int = 2
    nodes: int = 1
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    instrument: bool = True
    own_sets: bool = True
    budget: Budget = field(default_factory=Budget)


@dataclass
class RankRun:
    """What one rank did."""

    number: int
    outcome: str
    trace: list[EventId]
    cut_at: int | None
    cut_by: str
    output: str
    error: str
    recorder: Recorder | None

    @property
    def cut_trace(self) -> tuple[list[EventId], bool]:
        """The trace up to the first undeclared exception, and whether it ends before the program does."""
        if self.cut_at is not None:
            return self.trace[: self.cut_at], True
        return self.trace, not self.finished

    @property
    def finished(self) -> bool:
        """Whether the rank came to an end of the program that its text states."""
        return self.outcome == "end" or self.outcome.startswith(("exit", "raise "))


@dataclass
class Run:
    """One execution of a program on all its ranks."""

    job: Job
    files: dict[str, str]
    ended: str  # empty, or why the job was over before its ranks: deadlock, mismatch, time
    ranks: list[RankRun]
    sites: Sites

    @property
    def normal(self) -> bool:
        """Whether every rank ran to a declared end."""
        return not self.ended and all(r.finished and r.cut_at is None for r in self.ranks)


def run(files: Mapping[str, str], job: Job | None = None) -> Run:
    """Write the files to a folder and run the entry on all ranks. It always returns."""
    job = job or Job()
    with tempfile.TemporaryDirectory(prefix="judge") as name:
        folder = Path(name).resolve()
        for relative, text in files.items():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_text(text, encoding="utf-8")
        return run_folder(folder, job)


def run_folder(folder: Path, job: Job) -> Run:
    """Run the entry of a folder on all ranks."""
    sites = Sites()
    world = World(job.size, job.nodes)

    def compiled(text: str, relative: str) -> types.CodeType:
        tree = ast.parse(text, relative)
        if job.instrument:
            tree = instrumented(tree, relative, sites, own_sets=job.own_sets)
        return compile(tree, relative, "exec", dont_inherit=True)

    importer = Importer(folder, compiled, own_sets=job.own_sets and job.instrument)
    for rank in world.ranks:
        rank.recorder = Recorder(rank, sites, job.budget) if job.instrument else None
    around = Surroundings([str(folder / job.entry), *job.argv], dict(job.env), job.seed)

    def body(rank: Rank) -> None:
        _one_rank(rank, importer, folder / job.entry)

    with _inside(folder), patched(importer.import_module), _deep():
        world.run(body, around.enter, around.leave)
    files = {f.relative_to(folder).as_posix(): f.read_text() for f in sorted(folder.rglob("*.py"))}
    return Run(job, files, world.ended, [_told(r) for r in world.ranks], sites)


def _told(rank: Rank) -> RankRun:
    output = rank.own["output"].getvalue() if "output" in rank.own else ""
    error = "".join(traceback.format_exception(rank.error)) if rank.error is not None else ""
    return RankRun(rank.number, rank.outcome, rank.trace, rank.cut_at, rank.cut_by, output, error, rank.recorder)


def _one_rank(rank: Rank, importer: Importer, entry: Path) -> None:
    """Execute the entry script, and note how it ended."""
    recorder = rank.recorder
    sys.path.insert(0, str(entry.parent))
    try:
        package = ".".join(entry.relative_to(importer.folder).parts[:-1])
        importer.execute(entry, "__main__", package or "")
        rank.outcome = "end"
    except SystemExit as stop:
        rank.outcome = f"exit {stop.code}"
    except Exception as error:
        rank.error = error
        declared = recorder is None or recorder.is_declared(error)
        rank.outcome = f"{'raise' if declared else 'undeclared'} {type(error).__name__}"
        if recorder is not None:
            recorder.check(error)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """The program runs in its folder; what was imported of other libraries is out of its sight."""
    before = os.getcwd()
    hidden = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in _HIDDEN}
    os.chdir(folder)
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)
        os.chdir(before)


_HIDDEN = {"torch", "deepspeed", "accelerate", "transformers", "numpy"}


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    """Instruments make calls deeper; recursion of the program keeps its own limit."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 2000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def results(run: Run) -> Sequence[str]:
    """One line a rank, for messages."""
    return [f"rank {r.number}: {r.outcome}, {len(r.trace)} events" + _cut(r) for r in run.ranks]


def _cut(rank: RankRun) -> str:
    return f", cut at {rank.cut_at} by {rank.cut_by}" if rank.cut_at is not None else ""


def events_of(run: Run, rank: int) -> list[Any]:
    """The trace without columns: what runs with and without instruments have in common."""
    return [(e.api, e.path, e.line) for e in run.ranks[rank].trace]
