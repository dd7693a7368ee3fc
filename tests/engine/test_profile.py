"""``--profile``: where the time goes, whoever spends it, and nothing when nobody asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.core.profile import Profile
from dslint.engine.judge import Job, Judge
from dslint.engine.run import check_paths
from dslint.engine.scripts import POOL_THRESHOLD
from dslint.model.context import Context
from dslint.settings import make_settings

# The first mistake is found by a visitor of the syntax tree, the second one by a query.
SCRIPT = """\
import argparse
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--shuffle", type=bool)
def save(model):
    if dist.get_rank() == 0:
        dist.barrier()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in range(POOL_THRESHOLD + 2):
        # Large enough together for two workers.
        (tmp_path / f"train{number}.py").write_text(SCRIPT + f"x = {number}\n" + "# filled\n" * 1200)
    (tmp_path / "ds.json").write_text('{"train_batch_size": 7, "zero_optimization": {"stage": 2}}')
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2])
def test_time_is_found_in_every_stage_and_rule_here_and_in_workers(project: Path, jobs: int) -> None:
    profile = Profile()
    settings = make_settings({"jobs": jobs, "cache-dir": project / "cache"})
    profiled = check_paths(["."], settings, profile=profile)
    count = POOL_THRESHOLD + 2
    assert {stage: times for stage, (_, times) in profile.stages.items()} == {
        "find files": 1,
        "read files": 1,
        "data files": 1,
        "plans and contexts": 1,
        "byte tests of scripts": 1,
        "suppressions": 1,
        "syntax tree (ast)": count,
        "prechecks": count,
        "full parse (LibCST)": count,
        "walk with all script rules": count,
        "interpretation": count,
        "names of libraries": count,
    }
    assert all(seconds > 0 for seconds, _ in profile.stages.values())
    for code, column in (("DSL201", "queries"), ("DSL253", "handlers")):
        assert profile.files[code] == count
        assert min(profile.rules[code]["markers"], profile.rules[code][column]) > 0
    assert profile.files["DSL110"] == 1
    assert profile.rules["DSL110"]["handlers"] > 0
    assert not (project / "cache").exists()
    assert profiled.findings == check_paths(["."], settings).findings
    assert [f.code for f in profiled.findings].count("DSL201") == count


def test_a_judge_without_profile_keeps_no_time() -> None:
    assert Judge().judged(Job("a.py", SCRIPT.encode(), "script", ("DSL201",), Context())).spent is None


def test_profiles_add_up_and_the_cheap_rules_share_a_line() -> None:
    one, two = Profile(), Profile()
    for profile in (one, two):
        profile.spend("walk", 0.25)
        profile.charge("DSL201", "handlers", 0.5)
        profile.charge("DSL202", "markers", 0.0001)
        profile.count("DSL201")
    one.add(two)
    lines = [line.split() for line in one.table().splitlines()]
    assert ["walk", "0.500", "2"] in lines
    assert ["DSL201", "2", "0.000", "0.000", "1.000", "0.000", "1.000"] in lines
    assert lines[-1] == ["1", "others:", "0.000"]


def test_the_handlers_of_a_visitor_are_a_part_of_the_walk() -> None:
    judged = Judge(is_profiled=True).judged(Job("a.py", SCRIPT.encode(), "script", ("DSL201", "DSL253"), Context()))
    assert [f.code for f in judged.findings] == ["DSL253", "DSL201"]
    spent = judged.spent
    assert spent is not None
    assert 0 < spent.rules["DSL253"]["handlers"] <= spent.stages["walk with all script rules"][0]
    assert spent.rules["DSL201"]["handlers"] == 0 < spent.rules["DSL201"]["queries"]


def test_the_table_goes_to_standard_error(project: Path) -> None:
    command = [sys.executable, "-m", "dslint", "--profile", "--output-format", "json", "ds.json", "train0.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert [f["code"] for f in json.loads(done.stdout)["findings"]].count("DSL201") == 1
    assert "full parse (LibCST)" in done.stderr
    assert "seconds in all" in done.stderr


def test_a_profile_changes_no_file(project: Path) -> None:
    (project / "dslint.toml").write_text("fix = true\n")
    command = [sys.executable, "-m", "dslint", "--profile", "train0.py"]
    assert subprocess.run(command, cwd=project, capture_output=True, timeout=120).returncode == 1
    assert (project / "train0.py").read_text().startswith(SCRIPT)
    done = subprocess.run([*command, "--diff"], cwd=project, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be mixed with --diff" in done.stderr
