"""The static checks of the house, run as tests so that one command says everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONGEST

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy", "--no-error-summary"],
    ],
    ids=lambda c: " ".join(c[:2]),
)
def test_static_check_is_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, "scripts/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run python scripts/generate.py\n" + done.stdout + done.stderr


def test_version_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from dslint.cli import main\n"
        "for arguments in (['--version'], ['--help'], ['rules']):\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main(arguments)\n"
        "heavy = {'libcst', 'jsonschema', 'pydantic', 'rich', 'tree_sitter', 'torch', 'deepspeed', 'packaging'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_files_that_the_tests_begin_with_are_there() -> None:
    """``conftest.py`` names them; a file that was renamed would run last, on one worker."""
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
