"""One script interpreted: what rules about runs are asked with."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from dslint.python.entries import Analysis
from dslint.python.program import Files, Texts
from dslint.python.source import Module
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.engine.judge import Job
    from dslint.model.script.across.project import Project

# Modules that are kept parsed for the next script of the same process.
_KEPT = 600
# Frames of Python for the deepest chain of calls that is interpreted.
_FRAMES = 6_000


def run_queries(job: Job, source: SourceFile, tree: ast.Module, modules: Project | None) -> RunQuery:
    """Interpret a script with what it imports."""
    parsed: dict[str, Module | None] = {}
    files: Files = Texts({})
    if modules is not None:
        files, parsed = modules.files, modules.read_modules
        if len(parsed) > _KEPT:
            parsed.clear()
    path = files.absolute(job.path)
    kept = parsed.get(path)
    parsed[path] = Module(source, tree, absolute=path)
    analysis = Analysis(files, parsed=parsed)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    try:
        analysis.script(job.path)
    finally:
        sys.setrecursionlimit(limit)
        parsed[path] = kept if kept is not None else parsed[path]
    if modules is not None:
        modules.note(("script", path), analysis.program.asked)
    return RunQuery(analysis, job.path, job.context)
