"""One script: its first looks, its parse, and its rules, in this process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.profile import WALK, Profile, stage_of
from dslint.core.source import SourceFile, Span
from dslint.core.stopping import check_stop
from dslint.engine.inputs import crash, top_of
from dslint.engine.scriptrules import ScriptRule, load, may_apply, may_fire
from dslint.engine.toldonce import told_once
from dslint.model.context import Context
from dslint.parse.data import ParseProblem
from dslint.parse.reading import Unreadable, decode
from dslint.rules.markers import BY_RUN, begins_run, holds_alone, may_begin_run
from dslint.rules.own import SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from dslint.parse.python import ScriptDoc, ScriptProblem
    from dslint.python.files import Files
    from dslint.python.project import Project
    from dslint.python.search import Question

# An interpretation leaves as much garbage as the parse of so many bytes.
_INTERPRETED = 400_000
# So often a script may change before all that interpretations share is made anew.
_MOST_CHANGES = 20
# Seconds: what takes less need not be told in two parts.
_NOTICED = 0.06
# Code that people write stays below this nesting of expressions.
_DEEP = 100
_PARSE = "full parse (LibCST)"
_IMPORTS = "imports that may wait"


@dataclass(frozen=True, slots=True)
class Job:
    """One script to judge by the rules whose markers it holds. ``content`` is the digest of ``raw`` for the cache.

    A code may end in ``BY_RUN`` (see :mod:`dslint.rules.markers`). ``is_marked`` is false while
    nobody has looked for markers in the file; it has no codes then. ``is_named``: a syntax error is said in any case.
    """

    path: str
    raw: bytes
    kind: str
    codes: tuple[str, ...]
    context: Context
    content: str = ""
    is_marked: bool = True
    is_named: bool = False

    @property
    def plain(self) -> tuple[str, ...]:
        """The codes without what is written after them."""
        return tuple(code.removesuffix(BY_RUN) for code in self.codes)


@dataclass(slots=True)
class Judged:
    """What there is to say about one script.

    ``spent`` is the time that it took, if somebody asked for it; ``asked`` are the questions about other files on whose
    answers the findings rest; ``parsed`` is how many bytes needed the full parse. ``codes`` are what a look for markers
    has found, when it came with the judgement.
    """

    findings: list[Finding]
    spent: Profile | None = None
    asked: tuple[tuple[Question, str], ...] = ()
    parsed: int = 0
    codes: tuple[str, ...] | None = None


class Judge:
    """Judges scripts, one after the other; a process has one. Never raises for what a script holds.

    ``files`` is the way to the other files of the project; without it imports lead nowhere.
    """

    def __init__(self, is_profiled: bool = False, files: Files | None = None) -> None:
        self.is_profiled = is_profiled
        self._files = files
        self._modules: Project | None = None
        self._changes = 0
        # Bytes of scripts that were parsed since somebody has looked for the garbage of it.
        self.uncollected = 0
        # How long the last judgement of each script took, by its path.
        self.seconds: dict[str, float] = {}

    def renew(self, changed: Iterable[str], is_imported: bool) -> None:
        """Files have other texts now (absolute paths). ``is_imported``: scripts that were judged import one of them."""
        if self._modules is None:
            return
        self._changes += 1
        # What the bodies of modules did holds for another text of a script that none of them imports. But what is kept
        # of its old texts grows.
        if self._changes % _MOST_CHANGES == 0:
            self._modules.renew(changed)
        elif is_imported:
            self._modules.forget(changed)

    def judged(self, job: Job) -> Judged:
        """The findings of one script or notebook."""
        began = perf_counter()
        profile = Profile() if self.is_profiled else None
        look = _Look(job, profile, self._project())
        findings = look.findings()
        asked = self._modules.asked_by(("script", self._modules.files.absolute(job.path))) if self._modules else ()
        self.seconds[job.path] = perf_counter() - began
        return Judged(findings, profile, asked, look.parsed)

    def is_quick(self, path: str) -> bool:
        """The last judgement of a script took no time that anybody notices."""
        return self.seconds.get(path, _NOTICED) < _NOTICED

    def at_once(self, job: Job, text: str, before: Iterable[Finding]) -> list[Finding] | None:
        """What can be said of another text of a script before it is judged: see ``atonce.py``."""
        from dslint.engine.atonce import at_once

        return at_once(job, text, self._project(), before)

    def _project(self) -> Project | None:
        if self._files is not None and self._modules is None:
            from dslint.python.project import Project

            self._modules = Project(self._files)
        return self._modules


def check_script(job: Job) -> list[Finding]:
    """The findings of one script or notebook, without its project."""
    return Judge().judged(job).findings


@dataclass(slots=True)
class _Look:
    """One script on its way through the first looks to the rules."""

    job: Job
    profile: Profile | None
    modules: Project | None
    parsed: int = 0

    def findings(self) -> list[Finding]:
        """What the rules say; never raises."""
        job = self.job
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
            return list(_without_notebook_fixes(job, self._judge(source)))
        except (RecursionError, MemoryError):
            return [_too_deep(source)]

    def _judge(self, source: SourceFile) -> Iterable[Finding]:
        from dslint.parse.python import parse_ast

        job = self.job
        rules = [rule for rule in map(load, job.plain) if may_apply(rule, job.path, job.context, job.raw)]
        rules = [replace(rule, check=None) if rule.meta.code + BY_RUN in self.job.codes else rule for rule in rules]
        of_runs = [rule for rule in rules if rule.query is not None]
        visitors = [rule for rule in rules if rule.check is not None]
        of_libraries = [rule for rule in rules if rule.of_libraries is not None]
        of_runs = self._asked(of_runs)
        is_run = bool(of_runs)
        if not (visitors or is_run or of_libraries or self.job.is_named):
            return []
        with stage_of(self.profile, "syntax tree (ast)"):
            tree = self._known_tree(source) or parse_ast(source)
        visitors = self._left(visitors, tree)
        if not isinstance(tree, ast.Module):
            return self._of_syntax(source, tree, visitors) if visitors or is_run or self.job.is_named else []
        found = list(self._of_syntax(source, tree, visitors))
        if is_run:
            found, more = self._of_runs(source, tree, of_runs, found)
            found = told_once(found, more, {rule.meta.code: rule.meta.also_told_by for rule in of_runs})
        return [*found, *self._of_libraries(source, tree, of_libraries)]

    def _of_libraries(self, source: SourceFile, tree: ast.Module, rules: list[ScriptRule]) -> list[Finding]:
        """What the rules say that ask for names of libraries."""
        if not rules:
            return []
        from dslint.engine.libraryuses import of_libraries

        return of_libraries(self.job, source, tree, rules, self.modules, self.profile)

    def _known_tree(self, source: SourceFile) -> ast.Module | None:
        """The tree of the script, where another one has imported it."""
        if self.modules is None or self.job.kind != "script":
            return None
        known = self.modules.interpreted.parsed.get(self.modules.files.absolute(source.path))
        return known.tree if known is not None and known.source.text == source.text else None

    def _asked(self, rules: list[ScriptRule]) -> list[ScriptRule]:
        """Those of the rules about runs that are asked: all where a run begins here, or in what the script imports.

        Else those whose markers are here, if one of them asks for modules like this one wherever runs begin.
        """
        job = self.job
        if not rules or begins_run(job.raw) or job.context.vocabulary.stands_in(job.raw):
            return rules
        if may_begin_run(job.raw) and self._imports_start():
            return rules
        marked = [rule for rule in rules if rule.meta.code in job.codes]
        is_alone = any(holds_alone(rule.meta.alone, job.raw, self._imports_wait) for rule in marked)
        return marked if is_alone else []

    def _imports_wait(self) -> bool:
        """Something that the script imports of its project may wait for other ranks."""
        from dslint.engine.imports import lead_to_waits

        return self._lead_to(lead_to_waits)

    def _imports_start(self) -> bool:
        """Something that the script imports of its project starts what several ranks do together."""
        from dslint.engine.imports import lead_to_starts

        return self._lead_to(lead_to_starts)

    def _lead_to(self, question: Callable[[Project, str, bytes], bool]) -> bool:
        if self.modules is None or self.job.kind != "script":
            return False
        with stage_of(self.profile, _IMPORTS):
            path = self.modules.files.absolute(self.job.path)
            return question(self.modules, path, self.job.raw)

    def _of_runs(
        self, source: SourceFile, tree: ast.Module, rules: list[ScriptRule], found: list[Finding]
    ) -> tuple[list[Finding], list[Finding]]:
        """What visitors have found as far as a launch runs it, and what the rules say that ask about runs."""
        from dslint.engine.launchruns import as_started, runs_of, supposed, together
        from dslint.engine.runs import note_asked

        with stage_of(self.profile, "interpretation"):
            runs = runs_of(self.job, source, tree, self.modules)
            more = supposed(self.job, source, tree, self.modules, runs)
        self.parsed = max(self.parsed, _INTERPRETED)
        findings: list[Finding] = []
        for rule in rules:
            assert rule.query is not None
            check_stop()
            start = perf_counter()
            try:
                findings += together(runs, rule.query)
                findings += more.told(rule.query) if more is not None else ()
            except (RecursionError, MemoryError):
                raise
            except Exception as error:
                findings.append(crash(f"rule {rule.meta.code}", self.job.path, error))
            if self.profile is not None:
                if rule.check is None:  # else the walk counts the file
                    self.profile.count(rule.meta.code)
                self.profile.charge(rule.meta.code, "queries", perf_counter() - start)
        for query in (*(run.query for run in runs), *((more.query,) if more is not None else ())):
            note_asked(self.job, query, self.modules)
        kept = as_started(found, runs, frozenset(rule.meta.code for rule in rules))
        for query in (*(run.query for run in runs), *((more.query,) if more is not None else ())):
            query.release()
        return kept, findings

    def _of_syntax(
        self, source: SourceFile, tree: ast.Module | ScriptProblem, rules: list[ScriptRule]
    ) -> Iterable[Finding]:
        """What the rules say that visit the syntax tree."""
        from dslint.parse.python import TOO_DEEP, parse_script

        if not rules and isinstance(tree, ast.Module):
            return []
        from dslint.rules.walk import run_script_rules

        self.parsed = max(self.parsed, len(self.job.raw))
        check_stop()
        with stage_of(self.profile, _PARSE):
            doc = parse_script(source, tree)
        if isinstance(doc, ParseProblem):
            if isinstance(tree, ast.Module) and doc.message != TOO_DEEP:
                # Legal Python, such as tabs and blanks in one block, that LibCST refuses.
                place = source.location(doc.span)
                text = f"checked in part: {doc.message}"
                return [UNREADABLE_FILE.finding(place, text, severity=Severity.INFO)]
            return [SYNTAX_ERROR.finding(source.location(doc.span), doc.message)]
        if self.profile is not None:
            for rule in rules:
                self.profile.count(rule.meta.code)
        try:
            with stage_of(self.profile, WALK):
                checks = [(r.meta, r.check) for r in rules if r.check is not None]
                found = run_script_rules(doc, checks, self.job.context, self.profile, self.modules)
        except Exception:
            return _rule_by_rule(doc, rules, self.job, self.modules)
        return found

    def _left(self, visitors: list[ScriptRule], tree: ast.Module | ParseProblem) -> list[ScriptRule]:
        """The rules that may find something in the full tree, after a cheap look, of which there is none without one.

        Cheap looks do not know the names that a project adds.
        """
        if not isinstance(tree, ast.Module) or self.job.context.vocabulary.stands_in(self.job.raw):
            return visitors
        with stage_of(self.profile, "prechecks"):
            return [rule for rule in visitors if self._may_fire(rule, tree)]

    def _may_fire(self, rule: ScriptRule, tree: ast.Module) -> bool:
        look = partial(may_fire, rule, tree)
        return look() if self.profile is None else self.profile.charged(rule.meta.code, "precheck", look)


def _rule_by_rule(doc: ScriptDoc, rules: Sequence[ScriptRule], job: Job, modules: Project | None) -> list[Finding]:
    """After a crash: which rule was it? The others still report."""
    from dslint.rules.walk import run_script_rules

    findings: list[Finding] = []
    is_too_deep = False
    for rule in rules:
        assert rule.check is not None
        try:
            findings += run_script_rules(doc, [(rule.meta, rule.check)], job.context, None, modules)
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
