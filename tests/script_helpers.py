"""Helpers for tests that ask questions about a script."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.engine.judge import Job
from dslint.engine.runs import run_queries
from dslint.model.context import Context
from dslint.parse.python import ScriptDoc, parse_script
from dslint.rules.base import RuleMeta
from dslint.rules.runs import RunQuery
from dslint.rules.scriptcontext import ScriptContext
from dslint.rules.walk import ScriptCheck, run_script_rules


def document(code: str, path: str = "a.py") -> ScriptDoc:
    """The parsed script; the code may be indented with the test."""
    doc = parse_script(SourceFile(path, textwrap.dedent(code)))
    assert isinstance(doc, ScriptDoc), doc
    return doc


def script(code: str, context: Context | None = None) -> ScriptContext:
    """What rules would see."""
    return ScriptContext(document(code), context or Context())


def calls(ctx: ScriptContext, name: str) -> Iterator[cst.Call]:
    """The calls whose callee ends in this name, in source order."""
    for node in ctx.tree.order:
        if isinstance(node, cst.Call) and ctx.text(node.func).split(".")[-1] == name:
            yield node


def call(ctx: ScriptContext, name: str) -> cst.Call:
    """The first call of that name."""
    return next(calls(ctx, name))


def findings(module: object, code: str, context: Context | None = None) -> list[Finding]:
    """What the rule of a module says about a script."""
    meta: RuleMeta = module.META  # type: ignore[attr-defined]
    if not hasattr(module, "Check"):
        return queried(module, code, context)
    check: type[ScriptCheck] = module.Check  # type: ignore[attr-defined]
    doc = document(code)
    found = run_script_rules(doc, [(meta, check)], context or Context())
    if found and doc.tree is not None and hasattr(module, "precheck"):
        # A cheap look must never lose what the full analysis finds.
        assert module.precheck(doc.tree)  # type: ignore[attr-defined]
    return found


def asked(code: str, context: Context | None = None) -> RunQuery:
    """What queries would see."""
    source = SourceFile("a.py", textwrap.dedent(code))
    job = Job("a.py", source.text.encode(), "script", (), context or Context())
    return run_queries(job, source, ast.parse(source.text), None)


def queried(module: object, code: str, context: Context | None = None) -> list[Finding]:
    """What a rule about runs says about a script."""
    run = asked(code, context)
    return sorted(module.query(run), key=lambda f: f.location.region.line)  # type: ignore[attr-defined]
