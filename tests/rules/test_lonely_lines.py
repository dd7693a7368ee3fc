"""What the rule about lines with a shell of their own says of a recipe is what make does with it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dslint.engine.run import check_paths
from dslint.settings import make_settings

SETTINGS = make_settings({"no-cache": True, "jobs": 1, "select": ["DSL307"]})
RECIPES = {
    "\tcd part\n\t{}": True,
    "\tcd part && {}": False,
    "\tcd part; \\\n\t{}": False,
    "\tPLACE=part\n\t{}": True,
    "\t@cd part\n\t{}": True,
    "\techo go\n\t{}": False,
}


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("recipe", RECIPES)
def test_make_forgets_the_line(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "Makefile").write_text(f"train:\n{recipe.format('echo at $$PLACE `pwd`')}\n", encoding="utf-8")
    done = subprocess.run(["make", "-s"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    is_kept = done.stdout.strip().endswith("/part") or "at part" in done.stdout
    (tmp_path / "Makefile").write_text(f"train:\n{recipe.format('torchrun train.py')}\n", encoding="utf-8")
    found = check_paths([str(tmp_path)], SETTINGS).findings
    assert [finding.code for finding in found] == (["DSL307"] if RECIPES[recipe] else [])
    assert is_kept is (not RECIPES[recipe] and "cd" in recipe)
