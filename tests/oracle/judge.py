"""dslint as the user runs it, on one program: the rules that speak of ranks that part."""

from __future__ import annotations

from dslint.core.finding import Finding, Severity
from dslint.engine.judge import Job, check_script
from dslint.model.context import Context
from dslint.rules.index import RULES
from dslint.rules.markers import rules_by_marker

# Rules by code, as far as they exist: guards, exits, swallowed exceptions, order, uneven loops, groups of some ranks.
ABOUT_DIVERGENCE = ("DSL201", "DSL202", "DSL204", "DSL205", "DSL206", "DSL207", "DSL226", "DSL229")
CODES = frozenset(rule.code for rule in RULES) & frozenset(ABOUT_DIVERGENCE)


def findings(source: str) -> list[Finding]:
    """Warnings and errors of the divergence rules; markers and prechecks are passed as in a run."""
    raw = source.encode()
    codes = rules_by_marker(raw, CODES)
    found = check_script(Job("program.py", raw, "script", codes, Context())) if codes else []
    assert all(f.code in CODES for f in found), found
    return [f for f in found if f.severity is not Severity.INFO]
