"""``--profile``: where the time goes, whoever spends it, and nothing when nobody asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.core.profile import Profile
from dslint.engine.judge import Job, Judge
from dslint.engine.projectfiles import ProjectFiles
from dslint.engine.run import check_paths
from dslint.engine.scripts import POOL_THRESHOLD
from dslint.model.context import Context
from dslint.model.script.ranks.guards import Guards
from dslint.rules.profiled import watched_model
from dslint.rules.scriptcontext import ScriptContext
from dslint.settings import make_settings

SCRIPT = """\
import torch.distributed as dist
def save(model):
    if dist.get_rank() == 0:
        dist.barrier()
"""
IMPORTED = """\
import torch.distributed as dist
def meet():
    dist.barrier()
"""
IMPORTING = """\
import torch.distributed as dist
from share import meet
def save(model):
    if dist.get_rank() == 0:
        meet()
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
    }
    assert all(seconds > 0 for seconds, _ in profile.stages.values())
    assert profile.files["DSL201"] == count
    assert all(seconds > 0 for seconds in profile.rules["DSL201"].values())
    assert profile.files["DSL110"] == 1
    assert profile.rules["DSL110"]["handlers"] > 0
    assert not (project / "cache").exists()
    assert profiled.findings == check_paths(["."], settings).findings
    assert [f.code for f in profiled.findings].count("DSL201") == count


def test_questions_are_apart_from_the_rule_and_the_model_is_as_before() -> None:
    before = (Guards.guard, Guards.__init__, ScriptContext.guards.func)
    fits = []
    for _ in range(5):  # two milliseconds, of which a busy machine may take some between two looks at the clock
        with watched_model():
            assert Guards.guard is not before[0]
            judged = Judge(is_profiled=True).judged(Job("a.py", SCRIPT.encode(), "script", ("DSL201",), Context()))
        assert (Guards.guard, Guards.__init__, ScriptContext.guards.func) == before
        assert judged.spent is not None
        row = judged.spent.rules["DSL201"]
        assert row["model"] >= 0
        walk, _ = judged.spent.stages["walk with all script rules"]
        assert judged.spent.shared["traces of the ranks"] > 0
        fits.append(row["model"] + row["handlers"] + sum(judged.spent.shared.values()) < walk)
    assert any(fits)


def test_a_judge_without_profile_keeps_no_time() -> None:
    assert Judge().judged(Job("a.py", SCRIPT.encode(), "script", ("DSL201",), Context())).spent is None


def test_profiles_add_up_and_the_cheap_rules_share_a_line() -> None:
    one, two = Profile(), Profile()
    for profile in (one, two):
        profile.spend("walk", 0.25)
        profile.charge("DSL201", "handlers", 0.5)
        profile.charge("DSL202", "markers", 0.0001)
        profile.count("DSL201")
        profile.share("names", 0.125)
    one.add(two)
    lines = [line.split() for line in one.table().splitlines()]
    assert ["walk", "0.500", "2"] in lines
    assert ["names", "0.250"] in lines
    assert ["DSL201", "2", "0.000", "0.000", "1.000", "0.000", "0.000", "0.000", "1.000"] in lines
    assert lines[-1] == ["1", "others:", "0.000"]


def test_what_rules_share_is_divided_among_those_that_asked_file_by_file() -> None:
    total = Profile()
    for rules, seconds in ((("DSL201", "DSL204"), 0.5), (("DSL204",), 0.25)):
        one = Profile()
        one.walking |= set(rules)
        one.spend("walk with all script rules", 1.0)
        for code in rules:  # the first pays, the others find the answer
            one.ask(code, "traces of the ranks", seconds if code == rules[0] else 0.0)
        one.settle()
        total.add(one)
    assert total.shared == {"traces of the ranks": 0.75}
    assert {code: row["shared"] for code, row in total.rules.items()} == {"DSL201": 0.25, "DSL204": 0.5}
    lines = [line.split() for line in total.table().splitlines()]
    assert ["DSL204", "0", *["0.000"] * 4, "0.500", "0.000", "0.500", "25.0%"] in lines


def test_parts_of_the_walk_are_that_and_other_files_are_parsed_apart(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "share.py").write_text(IMPORTED)
    path = tmp_path / "train.py"
    path.write_text(IMPORTING)
    job = Job(str(path), path.read_bytes(), "script", ("DSL201", "DSL202", "DSL206"), Context())
    with watched_model():
        judged = Judge(is_profiled=True, files=ProjectFiles()).judged(job)
    assert [f.code for f in judged.findings] == ["DSL201"]
    spent = judged.spent
    assert spent is not None
    assert spent.stages["full parse (LibCST)"][1] == 2  # the script, and what it imports
    walk = spent.stages["walk with all script rules"][0]
    parts = [sum(row[column] for column in ("handlers", "model", "shared")) for row in spent.rules.values()]
    assert 0 < sum(parts) <= walk
    assert spent.walking == {"DSL201"}  # DSL202 asks about the run


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
