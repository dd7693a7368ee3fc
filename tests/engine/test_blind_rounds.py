"""Incidents that were written blind: what is found stays found, and the mended files are silent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from unified import files_of, patched

from dslint.core.finding import Finding, Severity
from dslint.engine.run import check_paths
from dslint.settings import make_settings

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "fixtures" / "blind"
TABLE: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((FOLDER / "table.toml").read_text())
CASES = [pytest.param(r, slug, id=slug) for r, entries in TABLE.items() for slug in entries]
FOUND = [pytest.param(r, slug, id=slug) for r, entries in TABLE.items() for slug in entries if entries[slug]["found"]]
# A maintainer would look this far around a finding.
NEAR = 8


def texts(folder: Path, *, mended: bool) -> dict[str, str]:
    """The files as they were written, or with the changes of ``good.diff``."""
    bad = folder / "bad"
    files = (path for path in sorted(bad.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    found = {path.relative_to(bad).as_posix(): path.read_text("utf-8") for path in files}
    for name, diff in files_of((folder / "good.diff").read_text("utf-8")).items() if mended else ():
        found[name] = patched(found.get(name, ""), diff)
    return found


def findings(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch, *, mended: bool) -> list[Finding]:
    """Warnings and errors in a copy of the files that is a project of its own."""
    for name, text in texts(folder, mended=mended).items():
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, "utf-8")
    (target / ".git").mkdir()
    monkeypatch.chdir(target)
    result = check_paths(["."], make_settings({"cache": False, "jobs": 1}, Path(os.curdir)))
    return [f for f in result.findings if f.severity is not Severity.INFO]


def test_the_table_names_every_incident() -> None:
    there = {(p.parent.parent.name, p.parent.name) for p in FOLDER.glob("*/*/incident.toml")}
    assert there == {(r, slug) for r, entries in TABLE.items() for slug in entries}


@pytest.mark.parametrize(("round_", "slug"), FOUND)
def test_what_was_found_is_found(round_: str, slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FOLDER / round_ / slug
    incident = tomllib.loads((folder / "incident.toml").read_text())
    wanted = [(incident["file"], incident["line"])]
    wanted += [(path, int(line)) for path, _, line in (place.rpartition(":") for place in incident.get("also", []))]
    near = {
        finding.code
        for finding in findings(folder, tmp_path, monkeypatch, mended=False)
        for place in (finding.location, *finding.related)
        for path, line in wanted
        if place.path == path and abs(place.region.line - line) <= NEAR
    }
    assert near >= set(TABLE[round_][slug]["found"])


@pytest.mark.parametrize(("round_", "slug"), CASES)
def test_the_mended_files_are_silent(round_: str, slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loud = findings(FOLDER / round_ / slug, tmp_path, monkeypatch, mended=True)
    known = TABLE[round_][slug].get("alarms", [])
    assert sorted({f.code for f in loud}) == known, [f"{f.location}: {f.code} {f.message}" for f in loud]
