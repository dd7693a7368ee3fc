"""The example projects before the probe: each finding is shown on real ranks, and the repaired twins leave nothing.

Starts torch ranks: this is the whole way from a project to a verdict. One run of the command for all of them.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
PROJECTS = REPO / "tests" / "fixtures" / "projects"
SECONDS = 240

# "path:line CODE" -> (verdict, experiment, words of the reason). OPEN: the rule has no experiment about this form yet;
# one that comes must confirm.
OPEN = ("no experiment", "", "")
STREAMS = ("NEEDS", "overlap-comm-race/", "the CPU accelerator has no streams")
LATE = ("CONFIRMED", "rank-later-than-timeout/", "Timed out waiting")
ALONE = "each in a world of 1"
DATA = ("no experiment", "", "is a matter of the data set")
SAVED = ("CONFIRMED", "engine-call-under-rank-guard/save_checkpoint", "rank 0 waits in barrier")
EXPECTED: dict[str, dict[str, tuple[str, str, str]]] = {
    "llava-eval-hang": {
        "train/train.py:135 DSL203": (
            "CONFIRMED",
            "trainer-extra-label-name/dicts-with-text",
            "TypeError: Unsupported",
        ),
    },
    "llava-loss-zero": {"scripts/zero2.json:19 DSL160": STREAMS, "scripts/zero3.json:19 DSL160": STREAMS},
    "minicpm-zero3-inference": {
        "infer.py:34 DSL223": LATE,
        "infer.py:36 DSL258": OPEN,
        "infer.py:75 DSL207": ("CONFIRMED", "uneven-loop/forward-z3", "rank 0 waits"),
        "infer.py:76 DSL270": ("CONFIRMED", "batch-not-divisible/", "seen by no rank"),
    },
    "rlhf-step3-stall": {
        "main.py:99 DSL223": LATE,
        "main.py:120 DSL201": SAVED,
        "main.py:121 DSL201": SAVED,
        "ppo_trainer.py:80 DSL201": ("CONFIRMED", "collective-under-rank-guard/barrier", "rank 0 waits in barrier"),
        "training_scripts/run_1.3b.sh:15 DSL309": ("CONFIRMED", "port-out-of-range/", "66668"),
        "training_scripts/run_6.7b.sh:29 DSL302": ("CONFIRMED", "broken-continuation/", "deepspeed never gets"),
    },
    "xtuner-8-nodes": {
        "run_8nodes.sh:16 DSL349": ("CONFIRMED", "nodes-never-meet/", "waits in next_rendezvous"),
        "run_8nodes.sh:16 DSL352": ("CONFIRMED", "launcher-not-told/torchrun", ALONE),
        "run_8nodes.sh:16 DSL353": DATA,
        "slurm/train_torchrun.sbatch:24 DSL404": ("CONFIRMED", "launcher-not-told/torchrun", ALONE),
        "slurm/train_xtuner.sbatch:17 DSL352": ("CONFIRMED", "launcher-not-told/srun", ALONE),
        "slurm/train_xtuner.sbatch:17 DSL353": DATA,
    },
}
# What a run without the right to make network namespaces says of several hosts.
NO_HOSTS = "network namespaces"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the probe needs /proc"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "deepspeed", "transformers", "accelerate")),
        reason="the extra `probe` is not installed",
    ),
]


def _probe(paths: Iterable[str], folder: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "dslint", "probe", "--format", "json", "--backend", "gloo", *paths]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def _copy(name: str, target: Path) -> Path:
    """Outside the repository, whose own settings must not matter."""
    return Path(shutil.copytree(PROJECTS / name, target / name, ignore=shutil.ignore_patterns("__pycache__")))


def _found(report: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """What the probe says of each finding, in the form of the table."""
    found: dict[str, tuple[str, str, str]] = {}
    for result in report["results"]:
        for finding in result["findings"]:
            name = f"{result['experiment']}/{result['case']}"
            found[f"{finding['path']}:{finding['line']} {finding['code']}"] = (
                result["verdict"],
                name,
                result["reason"],
            )
    for finding in report["without_experiment"]:
        found[f"{finding['path']}:{finding['line']} {finding['code']}"] = ("no experiment", "", finding["why"])
    return found


def _fits(said: tuple[str, str, str], wanted: tuple[str, str, str]) -> bool:
    if wanted == OPEN:
        return said[0] in ("no experiment", "CONFIRMED", "NEEDS")
    if said[0] == "NEEDS" and NO_HOSTS in said[2]:
        return said[1].startswith(wanted[1])
    return said[0] == wanted[0] and said[1].startswith(wanted[1]) and wanted[2] in said[2]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the probe says of all projects, in one run: a fork server costs more than the arms."""
    folder = tmp_path_factory.mktemp("projects")
    for name in EXPECTED:
        _copy(name, folder)
    code, report = _probe(EXPECTED, folder)
    assert code == 1
    return report


@pytest.mark.parametrize("name", EXPECTED)
def test_the_probe_shows_what_went_wrong_in_a_project(name: str, probed: dict[str, Any]) -> None:
    found = {
        place.removeprefix(f"{name}/"): said for place, said in _found(probed).items() if place.startswith(f"{name}/")
    }
    assert set(found) == set(EXPECTED[name])
    wrong = {place: said for place, said in found.items() if not _fits(said, EXPECTED[name][place])}
    assert not wrong, json.dumps(probed, indent=1)[-6000:]


def test_a_project_with_nothing_to_confirm_ends_well(tmp_path: Path) -> None:
    name = next(name for name, places in EXPECTED.items() if all(said[0] != "CONFIRMED" for said in places.values()))
    assert _probe(["."], _copy(name, tmp_path))[0] == 0


def test_every_example_project_is_in_the_table() -> None:
    broken = {path.name for path in PROJECTS.iterdir() if path.is_dir() and not path.name.endswith("-fixed")}
    assert broken == set(EXPECTED)


def test_the_repaired_twins_leave_nothing_to_probe(tmp_path: Path) -> None:
    for name in EXPECTED:
        _copy(f"{name}-fixed", tmp_path)
    code, report = _probe([f"{name}-fixed" for name in EXPECTED], tmp_path)
    assert (code, report["results"], report["without_experiment"]) == (0, [], [])
