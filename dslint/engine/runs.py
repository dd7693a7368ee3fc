"""One script interpreted: what rules about runs are asked with."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from dslint.python.entries import Analysis
from dslint.python.program import Texts
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.engine.judge import Job
    from dslint.model.script.across.project import Project

# Modules that are kept for the next script of the same process.
_KEPT = 600
# Frames of Python for the deepest chain of calls that is interpreted.
_FRAMES = 6_000


def run_queries(job: Job, source: SourceFile, tree: ast.Module, modules: Project | None) -> RunQuery:
    """Interpret a script with what it imports."""
    if modules is None:
        analysis = Analysis(Texts({}), shared=Shared())
    else:
        if len(modules.interpreted.parsed) > _KEPT:
            modules.interpreted = Shared()
        analysis = Analysis(modules.files, shared=modules.interpreted)
    _as_main(analysis, source, tree)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    try:
        analysis.script(job.path)
    finally:
        sys.setrecursionlimit(limit)
    if modules is not None:
        path = modules.files.absolute(job.path)
        modules.note(("script", path), analysis.program.noted.asked)
    return RunQuery(analysis, job.path, job.context)


def _as_main(analysis: Analysis, source: SourceFile, tree: ast.Module) -> None:
    """Take the tree that is there for the script, and for modules that import it."""
    shared, path = analysis.program.shared, analysis.program.files.absolute(source.path)
    known = shared.parsed.get(path)
    if known is None or known.source.text != source.text:
        shared.parsed[path] = Module(source, tree, absolute=path)
        shared.runs.pop(path, None)
