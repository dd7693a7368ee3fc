"""Small projects written after public incident threads, whose mistake lies between their files.

``bad/`` is the project as it was reported, ``good.diff`` what mends it: the mended twin is made here and never drifts.

``fixtures/incidents/table.toml`` names the thread, the cause, the finding, its place, and the world size of the plan.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import dslint
from jsonschema import Draft7Validator
from unified import files_of, patched

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "fixtures" / "incidents"
TABLE: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "table.toml").read_text("utf-8"))
SCHEMA = Draft7Validator(json.loads((ROOT / "schemas" / "plan.schema.json").read_text("utf-8")))
FOUND_AT_LEAST = 32


def files(slug: str, which: str) -> dict[str, str]:
    """The text of each file of the project, as reported or mended."""
    folder = FOLDER / slug / "bad"
    texts = {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in sorted(folder.rglob("*")) if p.is_file()}
    if which == "good":
        for name, diff in files_of((FOLDER / slug / "good.diff").read_text("utf-8")).items():
            texts[name] = patched(texts[name], diff)
    return texts


@cache
def reports(slug: str, which: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The warnings and errors of the project, and its plan."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / slug
        for name, text in {".git/HEAD": "", **files(slug, which)}.items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        os.chdir(project)
        try:
            findings = json.loads(dslint("--output-format", "json", "--no-cache", ".").out)["findings"]
            plan = json.loads(dslint("plan", "--format", "json").out)
        finally:
            os.chdir(before)
    return [f for f in findings if f["severity"] != "info"], plan


def places(findings: list[dict[str, Any]]) -> list[str]:
    return [f"{f['path']}:{f['line']} {f['code']} {f['message']}" for f in findings]


def expected(slug: str) -> list[dict[str, Any]]:
    """The findings at the place and with the code of the table; those that reach into another file, where it says."""
    entry, found = TABLE[slug], reports(slug, "bad")[0]
    hits = [f for f in found if (f["code"], f"{f['path']}:{f['line']}") == (entry["code"], entry["place"])]
    across = entry.get("across", False)
    return [f for f in hits if not across or any(place["path"] != f["path"] for place in f["related"])]


def parameters() -> list[Any]:
    return [
        pytest.param(slug, marks=pytest.mark.xfail(reason=entry["not_found"], strict=True))
        if "not_found" in entry
        else slug
        for slug, entry in TABLE.items()
    ]


@pytest.mark.parametrize("slug", parameters())
def test_the_cause_is_found_at_its_place(slug: str) -> None:
    assert expected(slug), places(reports(slug, "bad")[0])


@pytest.mark.parametrize("slug", TABLE)
def test_nothing_else_is_reported(slug: str) -> None:
    allowed = {TABLE[slug]["code"], *TABLE[slug].get("also", ())}
    other = [f for f in reports(slug, "bad")[0] if f["code"] not in allowed]
    assert not other, places(other)


@pytest.mark.parametrize("slug", TABLE)
def test_the_mended_project_is_silent(slug: str) -> None:
    assert not reports(slug, "good")[0], places(reports(slug, "good")[0])


@pytest.mark.parametrize("slug", TABLE)
def test_the_plans_fit_the_schema_and_say_the_world_size(slug: str) -> None:
    entry = TABLE[slug]
    for which in ("bad", "good"):
        plan = reports(slug, which)[1]
        SCHEMA.validate(plan)
        # A script that another one calls with arguments is planned once more without them.
        worlds = [c["world_size"] for c in plan["commands"] if "called" not in entry or c["world_size"] is not None]
        assert worlds
        if "world" in entry:
            assert None not in worlds
            assert which == "good" or entry["world"] in worlds


def test_most_incidents_are_found_and_each_has_its_files() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(TABLE)
    assert sum(bool(expected(slug)) for slug in TABLE) >= FOUND_AT_LEAST
    for slug, entry in TABLE.items():
        assert files(slug, "bad") != files(slug, "good")
        assert len(files(slug, "bad")) > 1
        assert entry["thread"].startswith("https://github.com/")
