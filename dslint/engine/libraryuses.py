"""The rules about the names of libraries, asked for one script by its cheap syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.profile import Profile, stage_of
from dslint.engine.inputs import crash

if TYPE_CHECKING:
    from dslint.core.source import SourceFile
    from dslint.engine.judge import Job
    from dslint.engine.scriptrules import ScriptRule
    from dslint.python.project import Project
    from dslint.python.uses.objects import Ancestry

_STAGE = "names of libraries"


def of_libraries(
    job: Job,
    source: SourceFile,
    tree: ast.Module,
    rules: Sequence[ScriptRule],
    modules: Project | None,
    profile: Profile | None,
) -> list[Finding]:
    """What the rules say that ask what a script uses of libraries."""
    from dslint.rules.libraryuses import LibraryUses, tracked_in, with_held

    with stage_of(profile, _STAGE):
        others = _foreign(job, tree, modules)
        tops = tracked_in(tree) | {base.partition(".")[0] for known in others.values() for base in known.bases}
        libraries = frozenset(top for top in with_held(tops) if not _is_own(job, top, modules))
        if not libraries:
            return []
        view = LibraryUses(source, tree, job.context, libraries, job.kind == "notebook", others)
    findings: list[Finding] = []
    for rule in rules:
        assert rule.of_libraries is not None
        start = perf_counter()
        try:
            findings += rule.of_libraries(view)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:
            findings.append(crash(f"rule {rule.meta.code}", job.path, error))
        if profile is not None:
            profile.count(rule.meta.code)
            profile.charge(rule.meta.code, "queries", perf_counter() - start)
    return findings


def _foreign(job: Job, tree: ast.Module, modules: Project | None) -> dict[str, Ancestry]:
    """The classes of other modules from which classes of a script derive."""
    from dslint.python.names import names_of
    from dslint.python.uses.foreign import foreign
    from dslint.rules.libraryuses import TRACKED

    if modules is None or job.kind != "script" or not any(isinstance(node, ast.ClassDef) for node in tree.body):
        return {}
    path = modules.files.absolute(job.path)
    return foreign(names_of(tree), modules, ("script", path), path, lambda dotted: dotted.partition(".")[0] in TRACKED)


def _is_own(job: Job, top: str, modules: Project | None) -> bool:
    """The project has a package or module of that name where Python looks first: a copy, or something else."""
    if modules is None or job.kind != "script":
        return False
    path = modules.files.absolute(job.path)
    return modules.holds(("script", path), path, top)
