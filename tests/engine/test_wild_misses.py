"""Mistakes of public projects that dslint once missed, rebuilt in own code: they are reported, and stay reported."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dslint.core.finding import Severity
from dslint.engine.run import check_paths
from dslint.settings import make_settings

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "fixtures" / "wild"
TABLE: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "table.toml").read_text("utf-8"))
# So far from the line that a maintainer would name.
NEAR = 3


def test_the_table_names_every_folder() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(TABLE)


@pytest.mark.parametrize("slug", TABLE)
def test_a_mistake_of_a_public_project_is_reported(slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = TABLE[slug]
    project = tmp_path / "project"
    shutil.copytree(FOLDER / slug, project)
    (project / ".git").mkdir()
    monkeypatch.chdir(project)
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1}, Path(os.curdir)))
    loud = [f for f in result.findings if f.code == entry["code"] and f.severity is not Severity.INFO]
    places = [place for finding in loud for place in (finding.location, *finding.related)]
    is_found = any(p.path == entry["file"] and abs(p.region.line - entry["line"]) <= NEAR for p in places)
    assert is_found is not entry.get("missed", False), [f"{f.location}: {f.code} {f.message}" for f in result.findings]
