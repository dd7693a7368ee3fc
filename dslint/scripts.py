"""The script stage: bytes first, then the cache, then LibCST on the few files left, in parallel when many."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from dslint.cache import ResultCache, digest
from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.inputs import crash, top_of
from dslint.model.context import Context
from dslint.parse.data import ParseProblem
from dslint.parse.reading import Unreadable, decode
from dslint.rules.own import RULE_CRASHED, SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from dslint.parse.python import ScriptDoc
    from dslint.rules.base import RuleMeta
    from dslint.rules.walk import ScriptCheck

# Below this many files a process pool costs more than it saves.
POOL_THRESHOLD = 24
CHUNK = 4


@dataclass(frozen=True, slots=True)
class Job:
    """One script to judge by the rules whose markers it holds."""

    path: str
    raw: bytes
    kind: str
    codes: tuple[str, ...]
    context: Context


def check_scripts(jobs: Sequence[Job], cache: ResultCache | None, workers: int) -> list[Finding]:
    """All findings of all jobs; results come from the cache where nothing changed."""
    findings: list[Finding] = []
    missing: list[tuple[str, Job]] = []
    for job in jobs:
        key = _key(job) if cache else ""
        stored = cache.get(key, job.path) if cache else None
        if stored is None:
            missing.append((key, job))
        else:
            findings += stored
    for key, _job, found in _run(missing, workers):
        findings += found
        # A crash is not a fact about the file: try again next time.
        if cache and not any(f.code == RULE_CRASHED.code for f in found):
            cache.put(key, found)
    return findings


def _key(job: Job) -> str:
    return digest(job.path, job.raw, " ".join(job.codes), repr(job.context))


def _run(missing: Sequence[tuple[str, Job]], workers: int) -> Iterator[tuple[str, Job, list[Finding]]]:
    if len(missing) < POOL_THRESHOLD or workers < 2:
        for key, job in missing:
            yield key, job, check_script(job)
        return
    # Large files first, so that no worker ends alone with the largest.
    order = sorted(missing, key=lambda item: -len(item[1].raw))
    chunks = [order[i : i + CHUNK] for i in range(0, len(order), CHUNK)]
    with _pool(workers) as pool:
        for chunk, results in zip(chunks, pool.map(_check_chunk, [[j for _, j in c] for c in chunks]), strict=True):
            for (key, job), found in zip(chunk, results, strict=True):
                yield key, job, found


def _pool(workers: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # fork starts in milliseconds and shares the imports; dslint has no threads when it forks.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(method), initializer=_init_worker)


def _init_worker() -> None:
    # The collector costs half of a LibCST parse; a worker frees its garbage between chunks.
    gc.disable()


def _check_chunk(jobs: Sequence[Job]) -> list[list[Finding]]:
    results = [check_script(job) for job in jobs]
    gc.collect()
    return results


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
    return list(_without_notebook_fixes(job, _judge(job, source)))


def _judge(job: Job, source: SourceFile) -> Iterable[Finding]:
    rules = _worth_parsing(source.text, [_load(code) for code in job.codes])
    if not rules:
        return []
    from dslint.parse.python import parse_script
    from dslint.rules.walk import run_script_rules

    doc = parse_script(source)
    if isinstance(doc, ParseProblem):
        return [SYNTAX_ERROR.finding(source.location(doc.span), doc.message)]
    try:
        return run_script_rules(doc, [(r.meta, r.check) for r in rules], job.context)
    except Exception:
        return _rule_by_rule(doc, rules, job)


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A loaded script rule; ``precheck`` says from the cheap syntax tree whether the rule can fire at all."""

    meta: RuleMeta
    check: type[ScriptCheck]
    precheck: Callable[[ast.Module], bool] | None


@cache
def _load(code: str) -> ScriptRule:
    from dslint.rules.registry import load_rule

    module = load_rule(code).module
    return ScriptRule(module.META, module.Check, getattr(module, "precheck", None))


def _worth_parsing(text: str, rules: list[ScriptRule]) -> list[ScriptRule]:
    """The rules left after a look at the cheap syntax tree, a tenth of the price of the full one."""
    if any(rule.precheck is None for rule in rules):
        return rules
    try:
        with warnings.catch_warnings():
            # "invalid escape sequence" in the user's code is not our message to print.
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The full parser says where and why.
        return rules
    return [rule for rule in rules if rule.precheck is not None and rule.precheck(tree)]


def _rule_by_rule(doc: ScriptDoc, rules: Sequence[ScriptRule], job: Job) -> list[Finding]:
    """After a crash: which rule was it? The others still report."""
    from dslint.rules.walk import run_script_rules

    findings: list[Finding] = []
    for rule in rules:
        try:
            findings += run_script_rules(doc, [(rule.meta, rule.check)], job.context)
        except Exception as error:
            findings.append(crash(f"rule {rule.meta.code}", job.path, error))
    return findings


def _without_notebook_fixes(job: Job, findings: Iterable[Finding]) -> Iterator[Finding]:
    # Edits of the joined cells cannot be written back into the JSON of a notebook.
    for finding in findings:
        yield replace(finding, fix=None) if job.kind == "notebook" and finding.fix else finding
