"""The action for GitHub and the template for GitLab: their shell steps are run one by one, the real dslint in them."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import SCRIPT

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
# The note and the errors that the steps are to tell apart.
CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}\n'


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """The environment of a runner, with dslint as the install step would leave it, and pip as a witness."""
    project, temp, bin_folder = tmp_path / "project", tmp_path / "temp", tmp_path / "temp/dslint/bin"
    (project / ".git").mkdir(parents=True)
    bin_folder.mkdir(parents=True)
    (project / "train.py").write_text(SCRIPT)
    (project / "ds.json").write_text(CONFIG)
    for name, text in {"dslint": f'exec {sys.executable} -m dslint "$@"', "pip": f'echo "$@" >> {temp}/pip'}.items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_folder / name).chmod(stat.S_IRWXU)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DSLINT_", "GITHUB_"))}
    return {
        **kept,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(temp),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(temp / "output"),
        "PWD": str(project),
    }


def run(script: str, runner: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    environment = {**runner, **more}
    return subprocess.run(command, cwd=runner["PWD"], env=environment, capture_output=True, text=True, timeout=120)


def step(name: str, runner: dict[str, str], **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step with its environment, expressions filled in as GitHub does."""
    defaults = {key: str(entry["default"]) for key, entry in ACTION["inputs"].items()}
    values = {**defaults, **{key.replace("_", "-"): value for key, value in inputs.items()}}

    def filled(text: str) -> str:
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
        return text.replace("${{ runner.temp }}", runner["RUNNER_TEMP"])

    assert "${{" not in STEPS[name]["run"], "an expression in a script is an injection"
    return run(STEPS[name]["run"], runner, **{k: filled(v) for k, v in STEPS[name].get("env", {}).items()})


def test_the_install_step_installs_the_action_itself(runner: dict[str, str]) -> None:
    script = STEPS["Install"]["run"].replace("python -m venv", ": would make")
    assert "python -m venv" in STEPS["Install"]["run"]
    done = run(script, runner)
    assert done.returncode == 0, done.stderr
    assert (Path(runner["RUNNER_TEMP"]) / "pip").read_text().split()[-1] == str(ROOT)


def test_the_report_step_writes_sarif_whatever_is_found(runner: dict[str, str]) -> None:
    done = step("Report", runner)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    report = json.loads((Path(runner["RUNNER_TEMP"]) / "dslint.sarif").read_text())
    assert {result["ruleId"] for result in report["runs"][0]["results"]} == {"DSL160", "DSL201", "DSL221"}
    assert Path(runner["GITHUB_OUTPUT"]).read_text() == f"sarif-file={runner['RUNNER_TEMP']}/dslint.sarif\n"
    upload = STEPS["Upload"]
    assert upload["with"]["sarif_file"] == "${{ runner.temp }}/dslint.sarif"
    assert (Path(runner["RUNNER_TEMP"]) / "dslint-cache").is_dir()


@pytest.mark.parametrize(
    ("inputs", "code", "words"),
    [
        ({}, 1, "::error file=train.py,line=3,"),
        ({"annotations": "false"}, 1, "train.py:3:41: DSL221 [*] error: "),
        ({"fail_on": "never"}, 0, "::error file=train.py"),
        ({"paths": "ds.json"}, 0, ""),
        ({"args": "--ignore DSL201 --select DSL2", "paths": "train.py ds.json"}, 1, "DSL221"),
        ({"args": "--selct X"}, 2, ""),
    ],
)
def test_the_check_step_annotates_and_fails_as_asked(
    inputs: dict[str, str], code: int, words: str, runner: dict[str, str]
) -> None:
    done = step("Check", runner, **inputs)
    assert done.returncode == code, done.stderr
    assert words in done.stdout
    assert "DSL160" not in done.stdout
    assert ("DSL201" in done.stdout) == (code != 2 and bool(words) and "args" not in inputs)


def test_every_step_and_input_of_the_action_is_used() -> None:
    text = (ROOT / "action.yml").read_text()
    for name, entry in ACTION["inputs"].items():
        assert entry["description"]
        assert f"inputs.{name}" in text
    for entry in ACTION["runs"]["steps"]:
        assert ("uses" in entry) != ("run" in entry)
        assert "run" not in entry or entry["shell"] == "bash"
        assert re.fullmatch(r"[\w./-]+@v\d+", entry.get("uses", "a/b@v1"))


def test_the_job_of_gitlab_writes_its_report_and_fails(runner: dict[str, str]) -> None:
    job: dict[str, Any] = yaml.safe_load((ROOT / "templates/gitlab-ci.yml").read_text())["dslint"]
    variables = {name: value.replace("$CI_PROJECT_DIR", runner["PWD"]) for name, value in job["variables"].items()}
    report, check = job["script"]
    assert run(job["before_script"][0], runner, **variables).returncode == 0
    assert run(report, runner, **variables).returncode == 0
    issues = json.loads((Path(runner["PWD"]) / job["artifacts"]["reports"]["codequality"]).read_text())
    assert {issue["check_name"] for issue in issues} == {"DSL160", "DSL201", "DSL221"}
    assert run(check, runner, **variables).returncode == 1
    assert (Path(runner["PWD"]) / job["cache"]["paths"][0]).is_dir()


def test_the_image_gets_all_that_the_package_is_made_of() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for word in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    # What hatchling reads: the package, the data that it takes along, and what the metadata names.
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "dslint", "schemas"}
    assert 'ENTRYPOINT ["dslint"]' in text
