"""What becomes of findings after the rules: each mistake once, by the rule that knows most, with what a run needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dslint.core.finding import Finding
from dslint.model.context import Context
from dslint.rules.registry import BY_CODE, load_rule


def most_informed(findings: list[Finding]) -> list[Finding]:
    """A rule that knows the run says more than one that knows only the config: one finding for one mistake."""
    told = {
        (older, f.location.path, f.pointer)
        for f in findings
        if f.pointer is not None and BY_CODE[f.code].kind == "plan"
        for older in load_rule(f.code).meta.supersedes
    }
    return [f for f in findings if (f.code, f.location.path, f.pointer) not in told]


def unique(findings: Iterable[Finding]) -> list[Finding]:
    """Several plans may see the same defect: one finding a place, code and message."""
    told: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        told.setdefault((*finding.sort_key, finding.location.span), finding)
    return list(told.values())


def writable(finding: Finding, rewritten: set[str]) -> Finding:
    """Without a fix of a command whose text stands in its file in another form."""
    if finding.fix is None or not rewritten or BY_CODE[finding.code].kind not in ("launch", "plan"):
        return finding
    return replace(finding, fix=None) if any(e.path in rewritten for e in finding.fix.edits) else finding


def with_run(kind: str, finding: Finding, doc: Any, context: Context) -> Finding:
    """With the facts about the run, which the experiments need and no rule states again."""
    if kind == "config":
        from dslint.model.deepspeed.config import run_facts as facts
    elif kind == "accelerate":
        from dslint.model.accelerate.contexts import run_facts as facts
    else:
        return finding
    return replace(finding, facts=tuple(sorted({**facts(doc, context), **dict(finding.facts)}.items())))
