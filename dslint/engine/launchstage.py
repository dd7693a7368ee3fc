"""The launch stage: shell scripts, Markdown and other launch files are read and judged, by workers when there are many.

What workers hand back is what the rest of a run needs of a file: its commands, the configs that it writes, findings. No
syntax tree and no text travels.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.profile import Profile, stage_of
from dslint.core.progress import tell
from dslint.core.source import SourceFile
from dslint.engine.inputs import LaunchFile, died, not_followed, readable, syntax_findings, unreadable
from dslint.parse.reading import Unreadable, decode

if TYPE_CHECKING:
    from types import TracebackType

    from dslint.engine.launchrules import LaunchJudge
    from dslint.engine.workers import Pool
    from dslint.model.embedded.heredoc import WrittenConfig
    from dslint.model.launch.command import LaunchCommand
    from dslint.model.workspace import Workspace

# Below this many files, and bytes, a process pool costs more than it saves.
POOL_THRESHOLD = 24
POOL_BYTES = 300_000
# What a worker takes at a time, and what is worth a worker of its own, in bytes of text.
_CHUNK = 50_000
_WORKER = 150_000


@dataclass(slots=True)
class LaunchRead:
    """What one launch file says.

    ``commands`` are those of all its documents in their order, behind those of a document what the scripts start that
    it calls. ``written`` are the configs that it writes. ``is_document``: there is shell text in it;
    ``is_rewritten``: that text stands in the file in another form, so that edits would not fit.
    ``findings`` are those of reading and of the launch rules; ``spent`` is the time for a profile.
    """

    path: str
    commands: tuple[LaunchCommand, ...] = ()
    written: tuple[WrittenConfig, ...] = ()
    is_document: bool = False
    is_rewritten: bool = False
    findings: list[Finding] = field(default_factory=list)
    spent: Profile | None = None


class LaunchReader:
    """Reads launch files, one after the other; a process has one. Never raises for what a file holds.

    ``overrides`` are texts by path that replace what stands on disk; ``rules`` judge what is read, if there are any.
    """

    def __init__(self, overrides: Mapping[str, str], rules: LaunchJudge | None = None) -> None:
        self._overrides = overrides
        self._workspace: Workspace | None = None
        self.rules = rules
        # The texts of the files that were read, by path.
        self.sources: dict[str, SourceFile] = {}

    def use(self, workspace: Workspace) -> None:
        """Read the files that scripts source and call from here."""
        self._workspace = workspace

    def read(self, file: LaunchFile, profile: Profile | None = None) -> LaunchRead:
        """One file."""
        read = LaunchRead(file.path)
        read.findings += readable(file.path, partial(self._read, file, read, profile))
        return read

    def _read(self, file: LaunchFile, read: LaunchRead, profile: Profile | None) -> None:
        from dslint.model.launch.document import read_launch_docs
        from dslint.model.workspace import Workspace

        text = decode(file.raw)
        if isinstance(text, Unreadable):
            read.findings.append(unreadable(file.path, text.reason))
            return
        if self._workspace is None:
            # The files that scripts source and call.
            self._workspace = Workspace(Path(), self._overrides)
        source = self.sources[file.path] = _source(file, text)
        with stage_of(profile, "launch files"):
            docs = read_launch_docs(source, file.kind, self._workspace)
        read.commands = tuple(command for doc in docs for command in (*doc.commands, *doc.called))
        read.written = tuple(written for doc in docs for written in doc.written)
        read.findings += [not_followed(doc.left_out) for doc in docs if doc.left_out]
        read.is_document = bool(docs)
        read.is_rewritten = any(doc.is_rewritten for doc in docs)
        for written in read.written:
            read.findings += syntax_findings(written.doc)
        if self.rules is not None:
            for doc in docs:
                read.findings += self.rules.findings(doc, profile)


class LaunchStage:
    """The launch files of one run, read while they are iterated over; when there are many, workers begin at once.

    A context manager, so that no worker outlives a run that fails. ``profile`` takes what all workers spend.
    """

    def __init__(
        self, files: Sequence[LaunchFile], reader: LaunchReader, workers: int = 1, profile: Profile | None = None
    ) -> None:
        self._files = files
        self._reader = reader
        self._profile = profile
        self._reads: list[LaunchRead] = []
        self._by_path: dict[str, LaunchRead] = {}
        self._paths = {file.path for file in files}
        self._pool = _pool(files, reader, workers, profile is not None)
        self._coming = self._pool.results() if self._pool is not None else self._here()

    def __enter__(self) -> LaunchStage:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.close(kill=kind is not None)

    def __iter__(self) -> Iterator[LaunchRead]:
        at = 0
        while at < len(self._files):
            while len(self._reads) <= at:
                self._next()
            yield self._reads[at]
            at += 1

    @property
    def is_parallel(self) -> bool:
        """Workers read."""
        return self._pool is not None

    def written_in(self, path: str) -> Sequence[WrittenConfig]:
        """The configs that a launch file writes; waits for the file when it is still being read."""
        if path not in self._paths:
            return ()
        while path not in self._by_path:
            self._next()
        return self._by_path[path].written

    def _next(self) -> None:
        read = next(self._coming)
        self._reads.append(read)
        tell("launch files", len(self._reads), len(self._files))
        self._by_path[read.path] = read
        if self._profile is not None and read.spent is not None:
            self._profile.add(read.spent)

    def _here(self) -> Iterator[LaunchRead]:
        for file in self._files:
            yield self._reader.read(file, self._profile)
            self._reader.sources.clear()


def written_by(launch: Iterable[LaunchRead]) -> Callable[[str], Sequence[WrittenConfig]]:
    """From the path of a launch file to the configs that it writes."""
    if isinstance(launch, LaunchStage):
        return launch.written_in
    written = {read.path: read.written for read in launch if read.written}
    return lambda path: written.get(path, ())


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pool(
    files: Sequence[LaunchFile], reader: LaunchReader, workers: int, is_profiled: bool
) -> Pool[LaunchFile, LaunchRead] | None:
    total = sum(len(file.raw) for file in files)
    if len(files) < POOL_THRESHOLD or total < POOL_BYTES or workers < 2:
        return None
    from dslint.engine.packing import unpack
    from dslint.engine.workers import Pool, can_fork, chunks_of

    if not can_fork():
        return None
    _prepare(reader)
    begin = partial(_init_worker, reader, is_profiled)
    source_of = _Texts(files).source
    read = partial(unpack, source_of=source_of)
    # Neighbours, in their order: the first results are the first that are asked for.
    chunks = list(chunks_of(files, _CHUNK))
    return Pool(min(workers, 1 + total // _WORKER), chunks, _read_chunk, _died, begin, read)


class _Texts:
    """The texts of launch files, for those who ask at which line something stands."""

    def __init__(self, files: Sequence[LaunchFile]) -> None:
        self._files = {file.path: file for file in files}
        self._sources: dict[str, SourceFile] = {}

    def source(self, path: str) -> SourceFile:
        """The text of a file that a worker could read."""
        if path not in self._sources:
            text = decode(self._files[path].raw)
            self._sources[path] = _source(self._files[path], text if isinstance(text, str) else "")
        return self._sources[path]


def _source(file: LaunchFile, text: str) -> SourceFile:
    """The text that places in a file count in: of a notebook that of its cells."""
    if file.kind == "notebook":
        from dslint.parse.notebook import notebook_text

        return notebook_text(file.path, text)
    return SourceFile(file.path, text)


def _died(file: LaunchFile) -> LaunchRead:
    return LaunchRead(file.path, findings=[died(file.path, "read")])


def _prepare(reader: LaunchReader) -> None:
    """Import what every launch file needs; none of it is garbage, so no collection need look at it again."""
    from dslint.model.launch.document import read_launch_docs

    read_launch_docs(SourceFile("", ""), "shell")
    if reader.rules is not None:
        reader.rules.load()
    gc.freeze()


# The reader of a worker process, and whether somebody asks for its time.
_reader = LaunchReader({})
_is_profiled = False


def _init_worker(reader: LaunchReader, is_profiled: bool) -> None:
    global _reader, _is_profiled
    gc.disable()
    _reader, _is_profiled = reader, is_profiled


def _read_chunk(files: Sequence[LaunchFile]) -> bytes:
    from dslint.engine.packing import pack

    profile = Profile() if _is_profiled else None
    reads = [_reader.read(file, profile) for file in files]
    reads[0].spent = profile
    packed = pack(reads, _reader.sources)
    _reader.sources.clear()
    gc.collect(0)
    return packed
