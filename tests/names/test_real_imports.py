"""Imports of public training scripts that were really run under pinned releases (`record_imports.py`) judge dslint.

No import that works is called an error, and nearly all that fail for a name that is not there are found.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

from dslint.core.finding import Severity
from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.surface import surface
from dslint.model.versions.allowed import Allowed, AllowedReleases, Bound
from dslint.rules.libraryuses import LibraryUses, tracked_in
from dslint.rules.script import dsl501_import_not_in_release as rule

FOUND = 0.95
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("imports.json").read_text(encoding="utf-8"))


@cache
def context(pins: str) -> Context:
    allowed = {}
    for pin in pins.split():
        library, release = pin.split("==")
        allowed[library] = AllowedReleases(library, ((Bound(f"=={release}"),),))
    return Context(allowed=Allowed(allowed))


def is_refused(text: str, pins: str) -> bool:
    tree = ast.parse(text)
    view = LibraryUses(SourceFile("train.py", text), tree, context(pins), frozenset(tracked_in(tree)))
    return any(finding.severity is Severity.ERROR for finding in rule.of_libraries(view))


def judged() -> tuple[list[str], list[str], int]:
    """The statements that work and are refused, those that fail and are not, and how many fail."""
    wrong, missed, failing = [], [], 0
    for row in ROWS:
        if any(surface(library) is None for library in tracked_in(ast.parse(row["text"]))):
            continue  # its releases were not read yet
        for pins, (outcome, name) in row["outcomes"].items():
            if outcome == "other":
                continue
            told = is_refused(row["text"], pins)
            failing += outcome == "missing"
            if told and outcome == "ok":
                wrong.append(f"{row['text']} works under {pins}")
            if not told and outcome == "missing":
                missed.append(f"{row['text']} lacks {name} under {pins}")
    return wrong, missed, failing


def test_imports_that_were_run_are_judged_right() -> None:
    wrong, missed, failing = judged()
    assert wrong == []
    assert failing > 150
    assert len(missed) <= (1 - FOUND) * failing, missed
    assert len({path for row in ROWS for path in row["from"]}) >= 40
