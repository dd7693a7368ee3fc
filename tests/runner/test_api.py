"""``dslint.check`` and ``dslint.preflight`` for programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dslint

ROOT = Path(__file__).resolve().parents[2]
CONFIG = '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds.json").write_text(CONFIG)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 --master_port 70000 train.py\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLINT_CACHE_DIR", str(tmp_path / ".git" / "cache"))
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_check_says_what_the_command_says(project: Path) -> None:
    report = dslint.check("ds.json", world_size=8)
    assert isinstance(report, dslint.Report)
    assert [(f.code, f.location.path, f.location.region.line) for f in report.findings] == [("DSL130", "ds.json", 1)]
    assert (report.ok, report.files, report.fail_on, report.failing) == (False, 1, "warning", report.findings)
    assert report.text.startswith("ds.json:1:22: DSL130 ")
    assert dslint.check(["ds.json"], world_size=8, ignore=["DSL130"]).ok
    assert [f.code for f in dslint.check([project / "run.sh", "ds.json"], select=["DSL3"]).findings] == ["DSL309"]
    assert dslint.check().files == 2


def test_check_takes_the_facts_of_the_flags(project: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "progressive_layer_drop": {"enabled": true}}'
    (project / "ds.json").write_text(text)
    assert not dslint.check("ds.json", deepspeed_version="0.19.8").ok
    assert dslint.check("ds.json", deepspeed_version="0.10.0").ok


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"world_size": 0}, "world-size"),
        ({"deepspeed_version": "new"}, "new"),
        ({"consumer": "nobody"}, "nobody"),
        ({"select": ["DSL3O9"]}, "unknown rule"),
    ],
)
def test_a_wrong_fact_is_an_error_of_value(facts: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dslint.check("ds.json", **facts)  # type: ignore[arg-type]


def test_a_path_that_is_missing_is_a_problem() -> None:
    report = dslint.check("nowhere.json")
    assert (report.ok, report.findings, len(report.problems)) == (True, (), 1)


def test_importing_dslint_loads_nothing() -> None:
    done = python("import dslint\nprint([m for m in sys.modules if m.startswith('dslint.')], dslint.__version__)")
    assert done.stdout == f"[] {dslint.__version__}\n"
    assert {"check", "preflight", "Report", "Finding"} <= set(dir(dslint))
    assert not hasattr(dslint, "nothing")


def test_preflight_leaves_no_trace_in_the_process() -> None:
    Path("train.py").write_text(
        f"import gc, os, signal, sys, threading\nsys.path.insert(0, {str(ROOT)!r})\nimport dslint\n"
        "def state():\n"
        "    return (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(),\n"
        "            threading.active_count(), os.getcwd(),\n"
        "            sys.getrecursionlimit(), [signal.getsignal(n) for n in (2, 13, 15)], dict(os.environ))\n"
        "before = state()\nreport = dslint.preflight(time_limit=0)\nassert state() == before\n"
        "heavy = {'torch', 'libcst', 'tree_sitter', 'rich', 'packaging', 'dslint.engine', 'dslint.model'}\n"
        "print(report.ok, sorted(heavy & set(sys.modules)), sys.argv)\n"
        "try:\n    os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError:\n    print('no child')\n"
    )
    done = subprocess.run([sys.executable, "train.py", "-x"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True [] ['train.py', '-x']\nno child\n", done.stderr
    assert done.stderr.endswith("; the script goes on\n")


def test_preflight_takes_its_words_and_threshold_from_the_caller() -> None:
    Path("train.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport argparse, dslint\n"
        "p = argparse.ArgumentParser()\np.add_argument('--deepspeed_config')\np.add_argument('--on')\n"
        "print([f.code for f in dslint.preflight(time_limit=0).findings])\n"
        "words = ['train.py', '--deepspeed_config', 'ds.json']\n"
        "print([f.code for f in dslint.preflight(words, fail_on=p.parse_args().on, time_limit=0).findings])\n"
        "if p.parse_args().on == 'never':\n    import deepspeed\n    deepspeed.initialize(args=p.parse_args())\n"
    )
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 1.0}')
    Path("dslint.toml").write_text('[severity]\nDSL101 = "warning"\n')
    command = [sys.executable, "train.py", "--on"]
    fine = subprocess.run([*command, "error"], capture_output=True, text=True, timeout=60)
    assert (fine.returncode, fine.stdout) == (0, "[]\n['DSL101']\n"), fine.stderr
    stopped = subprocess.run([*command, "warning"], capture_output=True, text=True, timeout=60)
    assert (stopped.returncode, stopped.stdout) == (1, "[]\n"), stopped.stderr
    assert "the script stops (fail_on=warning)" in stopped.stderr


def test_a_failure_of_dslint_stops_no_script() -> None:
    done = python(
        "sys.executable = '/nowhere/python'\nimport dslint\nreport = dslint.preflight(['train.py'])\n"
        "print(report.ok, report.problems)"
    )
    assert done.stdout.startswith('True ("internal error: FileNotFoundError: '), done.stderr
    assert done.stderr.endswith("; the script goes on unchecked\n")
    assert done.stderr.count("\n") == 1


def test_a_judge_that_does_not_answer_stops_no_script() -> None:
    Path("python").write_text("#!/bin/sh\nexec sleep 60\n")
    Path("python").chmod(0o755)
    done = python(
        "import os\nimport dslint.runner.script as script\nscript.PATIENCE = script._MARGIN = 0.5\n"
        "sys.executable = os.path.abspath('python')\nimport dslint\n"
        "report = dslint.preflight(['train.py'])\nprint(report.ok)"
    )
    assert done.stdout == "True\n", done.stderr
    assert "TimeoutExpired" in done.stderr
    assert done.stderr.endswith("; the script goes on unchecked\n")
