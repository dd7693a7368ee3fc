"""What README and ARCHITECTURE show and name is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dslint.arguments import COMMANDS, check_parser

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_printed_example_is_what_dslint_prints(tmp_path: Path) -> None:
    match = re.search(r"```text\n\$ dslint (?P<path>\S+)\n(?P<output>.*?)```\n", README, re.S)
    assert match, "README shows no output"
    project = shutil.copytree(ROOT / "tests/fixtures/projects/llava-loss-zero", tmp_path / "project")
    command = [sys.executable, "-m", "dslint", "--no-cache", "--output-format", "full", match["path"]]
    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "COLUMNS": "104", "PYTHONPATH": str(ROOT), "DSLINT_MIN_SEVERITY": ""},
        capture_output=True,
        text=True,
    )
    # On a terminal the report and the summary come one after the other.
    assert [*done.stdout.splitlines(), *done.stderr.splitlines()] == match["output"].splitlines()


def test_the_printed_plan_is_what_dslint_prints(tmp_path: Path) -> None:
    match = re.search(r"```text\n\$ dslint plan (?P<path>\S+)\n(?P<output>.*?)```\n", README, re.S)
    assert match, "README shows no plan"
    project = shutil.copytree(ROOT / "tests/fixtures/projects/llava-loss-zero", tmp_path / "project")
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "plan", match["path"]],
        cwd=project,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == match["output"].splitlines()


def test_every_flag_that_the_documents_name_exists() -> None:
    flags = set(check_parser()._option_string_actions)
    commands = re.findall(r"^\$ (?:cat .* \| )?dslint (.*?)(?:\s+#.*)?$", README, re.M)
    # Other commands have flags of their own.
    checks = [line for line in commands if line.partition(" ")[0] not in set(COMMANDS) - {"check"}]
    named = {word.partition("=")[0] for line in checks for word in line.split() if word.startswith("--")}
    assert named - flags == set()
    assert {"--nnodes", "--nproc-per-node", "--per-file-ignores", "--fix-only"} <= named


def test_the_map_names_every_module_at_the_top_and_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = {p.name for p in (ROOT / "dslint").glob("*.py") if not p.name.startswith("__")}
    rooms = {f"{p.parent.name}/" for p in (ROOT / "dslint").glob("*/__init__.py")}
    assert {name for name in modules | rooms if f"`{name}`" not in text and f"/{name}`" not in text} == set()


def test_the_commands_for_a_fresh_clone_name_what_is_there() -> None:
    paths = re.findall(r"(?:bin/dslint|bash) ((?:tests|scripts)/\S+)", README)
    assert len(paths) == 2
    assert all((ROOT / path).exists() for path in paths), paths
