"""Sets of releases that were installed and imported, against what dslint says of a project that pins them.

``tests/fixtures/pairs_installed.toml`` holds what Python said; nothing is installed or imported here. At first sight,
before anything was changed for it, dslint found 21 of the 23 sets that fail and refused none that works (60 sets in
all); the rows of ``schemas/clashes.json`` were written afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dslint.core.finding import Finding, Severity
from dslint.engine.run import check_paths
from dslint.settings import make_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).parents[1] / "fixtures" / "pairs_installed.toml"
PAIRS: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["pair"]
CODES = ["DSL501", "DSL503", "DSL508", "DSL509", "DSL530", "DSL531"]


def said(pair: dict[str, Any], folder: Path) -> list[Finding]:
    """The errors and warnings of a project that pins a set and runs its code."""
    folder.mkdir()
    (folder / ".git").mkdir()
    lines = "".join(f"{name}=={release}\n" for name, release in pair["installed"].items())
    (folder / "requirements.txt").write_text(lines, encoding="utf-8")
    (folder / "train.py").write_text(pair["code"].replace("; ", "\n") + "\n", encoding="utf-8")
    here = os.getcwd()
    try:
        os.chdir(folder)
        found = check_paths(["."], make_settings({"cache": False, "jobs": 1, "select": CODES})).findings
    finally:
        os.chdir(here)
    return [finding for finding in found if finding.severity in (Severity.ERROR, Severity.WARNING)]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], list[Finding]]]:
    """Each set with what dslint says of it."""
    folder = tmp_path_factory.mktemp("pairs")
    return [(pair, said(pair, folder / str(number))) for number, pair in enumerate(PAIRS)]


def shown(judged: list[tuple[dict[str, Any], list[Finding]]]) -> Iterator[str]:
    """One line a set, for a failure."""
    for pair, found in judged:
        yield f"{pair['installed']} {pair['code']}: {pair['error']} | {[str(finding.message) for finding in found]}"


def test_the_sets_are_hard_enough() -> None:
    failing = [pair for pair in PAIRS if pair["error"]]
    assert len(failing) >= 20
    assert sum(not pair["refused"] for pair in failing) >= 10


def test_no_set_that_works_is_refused(judged: list[tuple[dict[str, Any], list[Finding]]]) -> None:
    """What the metadata of a set forbid, pip refuses, whether the import works or not."""
    wrong = [(pair, found) for pair, found in judged if not pair["error"] and not pair["refused"] and found]
    assert not wrong, "\n".join(shown(wrong))


def test_sets_that_fail_are_found(judged: list[tuple[dict[str, Any], list[Finding]]]) -> None:
    failing = [(pair, found) for pair, found in judged if pair["error"]]
    missed = [(pair, found) for pair, found in failing if not found]
    assert len(missed) <= 0.1 * len(failing), "\n".join(shown(missed))
