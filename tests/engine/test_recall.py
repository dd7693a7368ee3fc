"""Scripts written after public incident threads: the mistake is found, and the mended twin is silent.

``bad.py`` is the script as it was reported, ``good.diff`` what mends it: the twin is made here, and never drifts.

``fixtures/recall/table.toml`` names the thread, the root cause, the rules that should report it, and why nothing does
where nothing does yet.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from unified import patched

from dslint.core.finding import Finding, Severity
from dslint.engine.judge import Job, check_script
from dslint.model.context import Context
from dslint.rules.index import RULES
from dslint.rules.markers import rules_by_marker

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "fixtures" / "recall"
TABLE: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "table.toml").read_text())
SCRIPT_RULES = frozenset(rule.code for rule in RULES if rule.kind == "script")
# By set: the first was there when the rules were written, the others were not.
FOUND_AT_LEAST = {1: 40, 2: 53, 3: 25}
# The finding may stand at the guard, the call or the loop that the root cause is made of.
NEAR = 8


def script(slug: str, name: str) -> str:
    """``bad.py``, or ``good.py``: the same with the changes of ``good.diff``."""
    bad = (FOLDER / slug / "bad.py").read_text()
    return bad if name == "bad.py" else patched(bad, (FOLDER / slug / "good.diff").read_text())


@cache
def findings(slug: str, name: str) -> tuple[Finding, ...]:
    """Warnings and errors of the script rules alone: no config, no launch command."""
    raw = script(slug, name).encode()
    job = Job(name, raw, "script", rules_by_marker(raw, SCRIPT_RULES), Context())
    found = (f for f in check_script(job) if f.severity is not Severity.INFO)
    # No release is stated here, so what a fresh install lacks is true and beside the point.
    return tuple(f for f in found if not f.code.startswith("DSL5"))


def is_found(slug: str) -> bool:
    entry = TABLE[slug]
    for finding in findings(slug, "bad.py"):
        lines = [finding.location.region.line, *(place.region.line for place in finding.related)]
        asked = (entry["line"], *entry.get("also", ()))
        if finding.code in entry["codes"] and min(abs(line - place) for line in lines for place in asked) <= NEAR:
            return True
    return False


def parameters() -> list[Any]:
    unfound = {slug: entry["not_found"] for slug, entry in TABLE.items() if "not_found" in entry}
    return [
        pytest.param(slug, marks=pytest.mark.xfail(reason=unfound[slug], strict=False)) if slug in unfound else slug
        for slug in TABLE
    ]


@pytest.mark.parametrize("slug", parameters())
def test_the_root_cause_is_found(slug: str) -> None:
    assert is_found(slug), [(f.code, f.location.region.line, f.message) for f in findings(slug, "bad.py")]


@pytest.mark.parametrize("slug", TABLE)
def test_nothing_but_the_root_cause_is_reported(slug: str) -> None:
    other = [f for f in findings(slug, "bad.py") if f.code not in TABLE[slug]["codes"]]
    assert not other, [(f.code, f.location.region.line, f.message) for f in other]


@pytest.mark.parametrize("slug", TABLE)
def test_the_mended_twin_is_silent(slug: str) -> None:
    assert not findings(slug, "good.py"), [
        (f.code, f.location.region.line, f.message) for f in findings(slug, "good.py")
    ]


@pytest.mark.parametrize(("number", "least"), FOUND_AT_LEAST.items())
def test_as_many_incidents_are_found_as_before(number: int, least: int) -> None:
    slugs = [slug for slug, entry in TABLE.items() if entry.get("set", 1) == number]
    assert len(slugs) >= 38
    assert sum(map(is_found, slugs)) >= least


def test_every_entry_has_its_scripts_and_scripts_are_of_real_size() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert folders == set(TABLE)
    for slug in TABLE:
        bad, good = (script(slug, name) for name in ("bad.py", "good.py"))
        assert bad != good
        assert len(bad.splitlines()) >= 55
