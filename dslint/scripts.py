"""The script stage: bytes first, then the cache, then LibCST on the few files left, in parallel when many."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from dslint.cache import ResultCache, digest
from dslint.core.finding import Finding
from dslint.core.source import SourceFile, Span
from dslint.inputs import crash, top_of
from dslint.model.context import Context
from dslint.parse.data import ParseProblem
from dslint.parse.reading import Unreadable, decode
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from types import TracebackType

    from dslint.parse.python import ScriptDoc
    from dslint.rules.base import RuleMeta
    from dslint.rules.walk import ScriptCheck
    from dslint.workers import Pool

# Below this many files a process pool costs more than it saves.
POOL_THRESHOLD = 24
# What a worker takes at a time, and what is worth a worker of its own, in bytes of source.
_CHUNK = 60_000
_WORKER = 250_000
# Garbage of this many bytes of source is collected at once.
_COLLECT = 200_000
# Code that people write stays below this nesting of expressions.
_DEEP = 100


@dataclass(frozen=True, slots=True)
class Job:
    """One script to judge by the rules whose markers it holds. ``content`` is the digest of ``raw`` for the cache."""

    path: str
    raw: bytes
    kind: str
    codes: tuple[str, ...]
    context: Context
    content: str = ""


class ScriptStage:
    """The scripts of one run: results of earlier runs are there at once, many others begin in the background.

    A context manager, so that no worker outlives a run that fails.
    """

    def __init__(self, jobs: Sequence[Job], results: ResultCache | None, workers: int) -> None:
        self._results = results
        self._stored: list[Finding] = []
        self._missing: list[tuple[str, Job]] = []
        for job in jobs:
            key = _key(job) if results else ""
            stored = results.get(key, job.path) if results else None
            if stored is None:
                self._missing.append((key, job))
            else:
                self._stored += stored
        # Large files first, so that no worker ends alone with the largest.
        self._missing.sort(key=lambda item: -len(item[1].raw))
        self._pool: Pool[Job, list[Finding]] | None = None
        if len(self._missing) >= POOL_THRESHOLD and workers > 1:
            total = sum(len(job.raw) for _, job in self._missing)
            chunks = list(_chunks(job for _, job in self._missing))
            self._pool = _pool(min(workers, 1 + total // _WORKER), chunks)

    def __enter__(self) -> ScriptStage:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.close(kill=kind is not None)

    def findings(self) -> list[Finding]:
        """All findings of all jobs."""
        findings = list(self._stored)
        for (key, _), found in zip(self._missing, self._judged(), strict=True):
            findings += found
            # A crash is not a fact about the file: try again next time.
            if self._results and not any(f.code == RULE_CRASHED.code for f in found):
                self._results.put(key, found)
        return findings

    def _judged(self) -> Iterator[list[Finding]]:
        if self._pool is None:
            return _check_all(job for _, job in self._missing)
        return self._pool.results()


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _key(job: Job) -> str:
    return digest(job.path, job.content or job.raw, " ".join(job.codes), repr(job.context))


def _chunks(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    chunk: list[Job] = []
    size = 0
    for job in jobs:
        chunk.append(job)
        size += len(job.raw)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _pool(workers: int, chunks: Sequence[Sequence[Job]]) -> Pool[Job, list[Finding]]:
    from dslint.workers import Pool

    _prepare()
    return Pool(workers, chunks, _check_chunk, _died, _init_worker)


def _died(job: Job) -> list[Finding]:
    message = "not checked: the process that judged it died, in the pool and alone"
    return [RULE_CRASHED.finding(top_of(job.path), message, hint="Please report this with the file that causes it")]


def _prepare() -> None:
    """Import what every script needs; none of it is garbage, so no collection need look at it again."""
    import dslint.rules.walk  # noqa: F401

    gc.freeze()


def _init_worker() -> None:
    _prepare()
    gc.disable()


def _check_chunk(jobs: Sequence[Job]) -> list[list[Finding]]:
    return list(_check_all(jobs))


def _check_all(jobs: Iterable[Job]) -> Iterator[list[Finding]]:
    size = 0
    for job in jobs:
        # The collector would scan the growing tree again and again, which costs half of a LibCST parse.
        with _no_collections():
            found = check_script(job)
        yield found
        size += len(job.raw)
        if size >= _COLLECT:
            size = 0
            gc.collect()


@contextmanager
def _no_collections() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def check_script(job: Job) -> list[Finding]:
    """The findings of one script or notebook; never raises."""
    text = decode(job.raw)
    if isinstance(text, Unreadable):
        return [UNREADABLE_FILE.finding(top_of(job.path), f"not checked: {text.reason}")]
    source = SourceFile(job.path, text)
    if job.kind == "notebook":
        from dslint.parse.notebook import read_notebook

        notebook = read_notebook(job.path, text)
        if isinstance(notebook, ParseProblem):
            return [SYNTAX_ERROR.finding(top_of(job.path), notebook.message)]
        source = notebook
    try:
        return list(_without_notebook_fixes(job, _judge(job, source)))
    except (RecursionError, MemoryError):
        return [_too_deep(source)]


def _judge(job: Job, source: SourceFile) -> Iterable[Finding]:
    from dslint.parse.python import parse_ast, parse_script

    rules = [rule for rule in map(_load, job.codes) if _applies(rule, job)]
    if not rules:
        return []
    tree = parse_ast(source)
    # Cheap looks do not know the names that a project adds.
    if isinstance(tree, ast.Module) and not job.context.vocabulary.stands_in(job.raw):
        rules = [rule for rule in rules if _may_fire(rule, tree)]
        if not rules:
            return []
    from dslint.rules.walk import run_script_rules

    doc = parse_script(source, tree)
    if isinstance(doc, ParseProblem):
        return [SYNTAX_ERROR.finding(source.location(doc.span), doc.message)]
    try:
        return run_script_rules(doc, [(r.meta, r.check) for r in rules], job.context)
    except Exception:
        return _rule_by_rule(doc, rules, job)


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A loaded script rule. What it may define to spare a file the full parse:

    ``applies`` says from the path and the context whether the rule can fire, ``precheck`` from the cheap syntax tree.
    """

    meta: RuleMeta
    check: type[ScriptCheck]
    applies: Callable[[str, Context], bool] | None
    precheck: Callable[[ast.Module], bool] | None


@cache
def _load(code: str) -> ScriptRule:
    from dslint.rules.registry import load_rule

    module = load_rule(code).module
    return ScriptRule(module.META, module.Check, getattr(module, "applies", None), getattr(module, "precheck", None))


def _applies(rule: ScriptRule, job: Job) -> bool:
    try:
        return rule.applies is None or rule.applies(job.path, job.context)
    except Exception:
        return True  # a first look that fails proves nothing


def _may_fire(rule: ScriptRule, tree: ast.Module) -> bool:
    try:
        return rule.precheck is None or rule.precheck(tree)
    except Exception:
        return True


def _rule_by_rule(doc: ScriptDoc, rules: Sequence[ScriptRule], job: Job) -> list[Finding]:
    """After a crash: which rule was it? The others still report."""
    from dslint.rules.walk import run_script_rules

    findings: list[Finding] = []
    is_too_deep = False
    for rule in rules:
        try:
            findings += run_script_rules(doc, [(rule.meta, rule.check)], job.context)
        except (RecursionError, MemoryError):
            is_too_deep = True
        except Exception as error:
            findings.append(crash(f"rule {rule.meta.code}", job.path, error))
    return [*findings, _too_deep(doc.source, doc.tree)] if is_too_deep else findings


def _too_deep(source: SourceFile, tree: ast.Module | None = None) -> Finding:
    """Not all could be judged: the place is the first statement that is deep at all."""
    from dslint.parse.nesting import too_deep
    from dslint.parse.python import TOO_DEEP

    span = too_deep(source, tree, _DEEP) if tree is not None else None
    return SYNTAX_ERROR.finding(source.location(span or Span(0, 0)), TOO_DEEP)


def _without_notebook_fixes(job: Job, findings: Iterable[Finding]) -> Iterator[Finding]:
    # Edits of the joined cells cannot be written back into the JSON of a notebook.
    for finding in findings:
        yield replace(finding, fix=None) if job.kind == "notebook" and finding.fix else finding
