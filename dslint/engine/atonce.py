"""What the text of a script alone says, in a fraction of the time that its judgement takes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile
from dslint.rules.own import SYNTAX_ERROR, UNREADABLE_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dslint.core.finding import Finding
    from dslint.engine.judge import Job
    from dslint.python.project import Project

# Even the names of a text with more characters take a while.
_LONG = 40_000
# These are said again by whoever reads the text at all.
_OF_READING = frozenset({SYNTAX_ERROR.code, UNREADABLE_FILE.code})


def at_once(job: Job, text: str, modules: Project | None, before: Iterable[Finding]) -> list[Finding] | None:
    """What the rules about names of libraries say now, and what all others said ``before``.

    ``None`` where Python cannot read the script: its judgement ends there, and takes no time.
    """
    from dslint.engine.libraryuses import of_libraries
    from dslint.engine.scriptrules import load
    from dslint.parse.python import parse_ast

    kept = [finding for finding in before if finding.code not in _OF_READING]
    if job.kind == "notebook":
        return kept
    source = SourceFile(job.path, text)
    tree = parse_ast(source)
    if not isinstance(tree, ast.Module):
        return None
    if len(text) > _LONG:
        return kept
    rules = [rule for rule in map(load, job.plain) if rule.of_libraries is not None]
    told = {rule.meta.code for rule in rules}
    found = of_libraries(job, source, tree, rules, modules, None) if rules else []
    return [*(finding for finding in kept if finding.code not in told), *found]
