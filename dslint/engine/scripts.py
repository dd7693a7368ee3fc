"""The script stage: bytes first, then the cache, then LibCST on the few files left, in parallel when many."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.garbage import no_collections
from dslint.core.profile import Profile, stage_of
from dslint.core.progress import told
from dslint.engine.cache import Results, digest
from dslint.engine.inputs import died
from dslint.engine.judge import Job, Judge, Judged
from dslint.engine.projectfiles import ProjectFiles
from dslint.engine.toldonce import own_first
from dslint.rules.markers import rules_of_all
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR

if TYPE_CHECKING:
    from types import TracebackType

    from dslint.engine.workers import Pool

# Below this many files a process pool costs more than it saves.
POOL_THRESHOLD = 24
# What a worker takes at a time, and what is worth a worker of its own, in bytes of source.
_CHUNK = 60_000
_WORKER = 250_000
# Garbage of this many bytes of source is collected at once.
_COLLECT = 200_000
# Workers look for markers, too, when there are so many bytes to look through.
_LOOK_APART = 2_000_000


class ScriptStage:
    """The scripts of one run: results of earlier runs are there at once, many others begin in the background.

    A context manager, so that no worker outlives a run that fails. ``enabled`` are the rules whose markers are looked
    for; ``files`` is the way to what scripts import; ``profile`` takes what all workers spend. ``judge`` is one that
    has judged others before, and judges what no worker does.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        results: Results | None,
        workers: int,
        files: ProjectFiles | None = None,
        profile: Profile | None = None,
        rule_files: tuple[str, ...] = (),
        enabled: frozenset[str] = frozenset(),
        judge: Judge | None = None,
    ) -> None:
        self._judge = judge
        files = files or ProjectFiles()
        files.is_remembered = results is not None
        self._results = results
        self._files = files
        self._profile = profile
        self._stored: list[tuple[str, Finding]] = []
        self._missing: list[tuple[str, Job]] = []
        self._enabled = enabled
        for job in self._marked(jobs, workers):
            key = _key(job) if results and job.is_marked else ""
            stored = results.get(key, job.path, files.answer) if results and key else None
            if stored is None:
                self._missing.append((key, job))
            else:
                self._stored += [(job.path, finding) for finding in stored]
        # Large files first, so that no worker ends alone with the largest.
        self._missing.sort(key=lambda item: -len(item[1].raw))
        self._pool: Pool[Job, Judged] | None = None
        if len(self._missing) >= POOL_THRESHOLD and workers > 1:
            total = sum(len(job.raw) for _, job in self._missing)
            begin = partial(_init_worker, profile is not None, files, rule_files, enabled)
            self._pool = _pool(min(workers, 1 + total // _WORKER), [job for _, job in self._missing], begin)

    def __enter__(self) -> ScriptStage:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.close(kill=kind is not None)

    def _marked(self, jobs: Sequence[Job], workers: int) -> Iterator[Job]:
        """The jobs in which some rule finds its markers; the others only if workers are to look."""
        others = [job for job in jobs if not job.is_marked]
        is_much = len(others) >= POOL_THRESHOLD and sum(len(job.raw) for job in others) > _LOOK_APART
        if is_much and workers > 1:
            yield from jobs
            return
        yield from (job for job in jobs if job.is_marked)
        with stage_of(self._profile, "byte tests of scripts"):
            found = list(_look(others, self._enabled, self._profile))
        for job in found:
            if self._results:
                self._results.mark(job.content, job.codes)
            if job.codes or job.is_named:
                yield job

    def findings(self) -> list[Finding]:
        """All findings of all jobs, each once."""
        return own_first(self.by_path())

    def by_path(self) -> list[tuple[str, Finding]]:
        """All findings of all jobs, with the file that was judged."""
        findings = list(self._stored)
        coming = told("scripts", self._judged(), len(self._missing))
        for (key, job), judged in zip(self._missing, coming, strict=True):
            findings += [(job.path, finding) for finding in judged.findings]
            if self._profile is not None and judged.spent is not None:
                self._profile.add(judged.spent)
            if self._results:
                self._keep(self._results, key, job, judged)
        return findings

    @staticmethod
    def _keep(results: Results, key: str, job: Job, judged: Judged) -> None:
        # A crash is not a fact about the file: try again next time.
        if any(f.code == RULE_CRASHED.code for f in judged.findings):
            return
        if judged.codes is not None:
            results.mark(job.content, judged.codes)
            key = _key(replace(job, codes=judged.codes)) if judged.codes or job.is_named else ""
        if key:
            results.put(key, job.path, judged.findings, judged.asked)

    def _judged(self) -> Iterator[Judged]:
        if self._pool is None:
            judge = self._judge or Judge(self._profile is not None, self._files)
            return _check_all(judge, [job for _, job in self._missing])
        return self._pool.results()


def _key(job: Job) -> str:
    asked = " ".join((*job.codes, SYNTAX_ERROR.code) if job.is_named else job.codes)
    return digest(job.path, job.content or job.raw, asked, repr(job.context))


def _pool(workers: int, jobs: Sequence[Job], begin: Callable[[], None]) -> Pool[Job, Judged]:
    from dslint.engine.workers import Pool, chunks_of

    _prepare()
    return Pool(workers, list(chunks_of(jobs, _CHUNK)), _check_chunk, _died, begin)


def _died(job: Job) -> Judged:
    return Judged([died(job.path, "judged")])


def _prepare() -> None:
    """Import what every script needs; none of it is garbage, so no collection need look at it again."""
    import dslint.rules.scriptcontext
    import dslint.rules.walk  # noqa: F401

    gc.freeze()


# The judge of a worker process, and the rules whose markers it looks for.
_judge = Judge()
_enabled: frozenset[str] = frozenset()


def _init_worker(is_profiled: bool, files: ProjectFiles, rule_files: tuple[str, ...], enabled: frozenset[str]) -> None:
    global _judge, _enabled
    _prepare()
    if rule_files:
        from dslint.engine.projectrules import activate

        activate(rule_files)
    gc.disable()
    _judge, _enabled = Judge(is_profiled, files), enabled


def _check_chunk(jobs: Sequence[Job]) -> list[Judged]:
    others = [job for job in jobs if not job.is_marked]
    profile = Profile() if others and _judge.is_profiled else None
    with stage_of(profile, "byte tests of scripts"):
        looked = iter(list(_look(others, _enabled, profile)))
    marked = [job if job.is_marked else next(looked) for job in jobs]
    judged = iter(list(_check_all(_judge, [job for job in marked if job.codes or job.is_named])))
    found = [next(judged) if job.codes or job.is_named else Judged([]) for job in marked]
    for job, before, one in zip(marked, jobs, found, strict=True):
        one.codes = None if before.is_marked else job.codes
    if profile is not None:
        profile.add(found[0].spent or Profile())
        found[0].spent = profile
    return found


def _look(jobs: Sequence[Job], enabled: frozenset[str], profile: Profile | None) -> Iterator[Job]:
    """The jobs with the codes of the rules that find their markers; the project's own names are the same for all."""
    own = jobs[0].context.vocabulary if jobs else None
    texts = [job.raw for job in jobs]
    for job, codes in zip(jobs, rules_of_all(texts, enabled, own, profile), strict=True):
        yield replace(job, codes=codes, is_marked=True)


def _check_all(judge: Judge, jobs: Iterable[Job]) -> Iterator[Judged]:
    # The collector would scan the growing trees again and again, which costs half of a LibCST parse.
    with no_collections():
        for job in jobs:
            # Before the next script, not after this one: a process that ends has no use for it.
            if judge.uncollected >= _COLLECT:
                judge.uncollected = 0
                # Garbage is young here, as nothing was collected since it was made; kept trees are not looked at again.
                gc.collect(0)
            judged = judge.judged(job)
            judge.uncollected += judged.parsed
            yield judged
