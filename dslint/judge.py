"""One script: its first looks, its parse, and its rules, in this process."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.profile import Profile, stage_of
from dslint.core.source import SourceFile, Span
from dslint.inputs import crash, top_of
from dslint.model.context import Context
from dslint.parse.data import ParseProblem
from dslint.parse.reading import Unreadable, decode
from dslint.rules.own import SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from dslint.parse.python import ScriptDoc
    from dslint.rules.base import RuleMeta
    from dslint.rules.walk import ScriptCheck

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


@dataclass(slots=True)
class Judged:
    """What there is to say about one script. ``spent`` is the time that it took, if somebody asked for it."""

    findings: list[Finding]
    spent: Profile | None = None


class Judge:
    """Judges scripts, one after the other; a process has one. Never raises for what a script holds."""

    def __init__(self, is_profiled: bool = False) -> None:
        self._is_profiled = is_profiled

    def judged(self, job: Job) -> Judged:
        """The findings of one script or notebook."""
        look = _Look(job, Profile() if self._is_profiled else None)
        return Judged(look.findings(), look.profile)


def check_script(job: Job) -> list[Finding]:
    """The findings of one script or notebook, without its project."""
    return Judge().judged(job).findings


@dataclass(frozen=True, slots=True)
class _Look:
    """One script on its way through the first looks to the rules."""

    job: Job
    profile: Profile | None

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
        from dslint.parse.python import parse_ast, parse_script

        rules = [rule for rule in map(load, self.job.codes) if _applies(rule, self.job)]
        if not rules:
            return []
        with stage_of(self.profile, "syntax tree (ast)"):
            tree = parse_ast(source)
        # Cheap looks do not know the names that a project adds.
        if isinstance(tree, ast.Module) and not self.job.context.vocabulary.stands_in(self.job.raw):
            with stage_of(self.profile, "prechecks"):
                rules = [rule for rule in rules if self._may_fire(rule, tree)]
            if not rules:
                return []
        from dslint.rules.walk import run_script_rules

        with stage_of(self.profile, "full parse (LibCST)"):
            doc = parse_script(source, tree)
        if isinstance(doc, ParseProblem):
            return [SYNTAX_ERROR.finding(source.location(doc.span), doc.message)]
        if self.profile is not None:
            for rule in rules:
                self.profile.count(rule.meta.code)
        try:
            with stage_of(self.profile, "walk with all script rules"):
                return run_script_rules(doc, [(r.meta, r.check) for r in rules], self.job.context, self.profile)
        except Exception:
            return _rule_by_rule(doc, rules, self.job)

    def _may_fire(self, rule: ScriptRule, tree: ast.Module) -> bool:
        if self.profile is None:
            return _may_fire(rule, tree)
        return self.profile.charged(rule.meta.code, "precheck", partial(_may_fire, rule, tree))


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
def load(code: str) -> ScriptRule:
    """The script rule with this code."""
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
