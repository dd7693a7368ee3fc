"""One script interpreted: what rules about runs are asked with."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.python.entries import Analysis
from dslint.python.files import Texts
from dslint.python.libraries import libraries
from dslint.python.shared import Shared
from dslint.python.stack import deep_calls
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.engine.judge import Job
    from dslint.python.launches import Launch
    from dslint.python.project import Project

# Modules that are kept for the next script of the same process.
_KEPT = 600


def make_room(modules: Project | None) -> None:
    """Forget the modules of earlier scripts when they are many; not between the runs of one script."""
    if modules is not None and len(modules.interpreted.parsed) > _KEPT:
        modules.interpreted = Shared()


def run_queries(
    job: Job, source: SourceFile, tree: ast.Module, modules: Project | None, launch: Launch | None = None
) -> RunQuery:
    """Interpret a script with what it imports, as a launch command starts it where one is known."""
    worlds = launch.worlds if launch is not None else None
    rows = libraries(job.context.vocabulary)
    if modules is None:
        analysis = Analysis(Texts({}), worlds, rows, shared=Shared())
    else:
        shared = modules.interpreted if launch is None else modules.interpreted.started(worlds)
        analysis = Analysis(modules.files, worlds, rows, shared)
    analysis.machine.launch = launch
    shared = modules.interpreted if modules is not None else analysis.program.shared
    shared.module_of(source, tree, analysis.program.files.absolute(source.path))
    with deep_calls():
        analysis.script(job.path)
    query = RunQuery(analysis, job.path, job.context)
    note_asked(job, query, modules)
    return query


def note_asked(job: Job, query: RunQuery, modules: Project | None) -> None:
    """Write down the files that interpretation, or since then a rule, has asked for: a cached result rests on them."""
    if modules is not None:
        modules.note(("script", modules.files.absolute(job.path)), query.analysis.program.noted.asked)
