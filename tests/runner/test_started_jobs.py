"""Jobs of the real torchrun, deepspeed and accelerate on CPUs, started by ``dslint run`` and looked at from inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.model.launch.launchers.environment import SETS
from dslint.runner.ranks import rank_of, script_launch, task_launcher

for library in ("torch", "deepspeed", "accelerate"):
    pytest.importorskip(library)

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ROOT / "tests" / "fixtures" / "projects"
DSLINT = [sys.executable, "-m", "dslint", "run", "--time-limit", "0"]
# Every process writes down what it got; the first line judges.
SCRIPT = """\
{first}
import json, os, sys
with open(f"seen-{{os.getpid()}}.json", "w") as file:
    json.dump({{"argv": sys.argv, "rank": os.environ.get("RANK"), "torch": "torch" in sys.modules}}, file)
os.write(1, b"\\0\\xff" * 10)
"""
LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc_per_node", "2", "--standalone"],
    "deepspeed": ["deepspeed", "--num_gpus", "2", "--no_local_rank"],
    "accelerate": ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"],
    "module": [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"],
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT.format(first=""))
    (folder / "ds.json").write_text('{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}\n')
    monkeypatch.chdir(folder)
    for name in {name for names in SETS.values() for name in names}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name, value in {"HOME": tmp_path, "HF_HOME": tmp_path, "DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "4"}.items():
        monkeypatch.setenv(name, str(value))
    return folder


def started(words: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, capture_output=True, timeout=200)


def notes(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(path.read_text()) for path in folder.glob("seen-*.json")]
    return sorted(found, key=lambda note: str(note["rank"]))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_runs_as_it_does_by_itself(launcher: str, project: Path) -> None:
    done = started([*DSLINT, "--", *LAUNCHERS[launcher], "train.py", "--lr", "1 e"])
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert [(note["rank"], note["argv"]) for note in notes(project)] == [
        (str(rank), ["train.py", "--lr", "1 e"]) for rank in range(2)
    ]
    assert done.stdout.count(b"\0\xff" * 10) == 2
    name = "torchrun" if launcher == "module" else launcher
    assert f"{name}: 1 node x 2 processes = 2 ranks" in said or f"{name}: ? nodes x ? processes = 2 ranks" in said
    assert said.count("the command starts") == 1


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed", "accelerate"])
def test_the_first_line_of_a_script_knows_its_launch(launcher: str, project: Path) -> None:
    first = "import dslint; dslint.preflight(time_limit=0)"
    (project / "train.py").write_text(SCRIPT.format(first=first))
    done = started([*LAUNCHERS[launcher], "train.py"])
    said = done.stderr.decode() + done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said
    assert [(note["rank"], note["torch"]) for note in notes(project)] == [("0", False), ("1", False)]
    # accelerate launch is torchrun, as far as its processes can tell.
    name = "deepspeed" if launcher == "deepspeed" else "torchrun"
    assert said.count(f"{name}: 1 node x 2 processes = 2 ranks") == 1
    assert said.count("the script goes on") == 1


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_the_first_line_of_a_script_ends_all_ranks(launcher: str, project: Path) -> None:
    first = "import dslint; dslint.preflight(time_limit=0)"
    more = (
        "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n"
        "deepspeed.add_config_arguments(p)\nimport time\ntime.sleep(100)\n"
    )
    (project / "train.py").write_text(SCRIPT.format(first=first) + more)
    words = ["train.py", "--deepspeed", "--deepspeed_config", "ds.json"]
    done = started([*LAUNCHERS[launcher], *words])
    said = done.stderr.decode() + done.stdout.decode("utf-8", "replace")
    assert done.returncode == 1
    assert said.count("ds.json:1:22: DSL408") == 1
    assert "the script stops (fail_on=warning)" in said
    assert "0" not in [note["rank"] for note in notes(project)]


def test_a_module_and_a_plain_script_know_how_they_were_started(project: Path) -> None:
    first = "import dslint; dslint.preflight(time_limit=0)"
    (project / "pkg").mkdir()
    (project / "pkg" / "train.py").write_text(SCRIPT.format(first=first))
    module = started([sys.executable, "-m", "pkg.train"]).stderr.decode()
    plain = started([sys.executable, "pkg/train.py"]).stderr.decode()
    assert f"{sys.executable} -m pkg.train" in module
    assert f"{sys.executable} pkg/train.py" in plain


# The founding incidents


@pytest.mark.parametrize(
    ("name", "command", "codes"),
    [
        ("llava-loss-zero", "bash scripts/pretrain.sh", {"DSL160"}),
        ("llava-eval-hang", "bash scripts/finetune.sh", {"DSL203"}),
        ("minicpm-zero3-inference", "bash run_infer.sh prompts images", {"DSL207", "DSL223", "DSL258", "DSL270"}),
        ("rlhf-step3-stall", "bash training_scripts/run_1.3b.sh", {"DSL201", "DSL309"}),
        ("xtuner-8-nodes", "bash run_8nodes.sh", {"DSL349"}),
    ],
)
def test_an_incident_is_found_before_its_job_starts(name: str, command: str, codes: set[str], tmp_path: Path) -> None:
    for which in (name, f"{name}-fixed"):
        folder = shutil.copytree(PROJECTS / which, tmp_path / which)
        (folder / ".git").mkdir()
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        for tool in ("torchrun", "deepspeed", "accelerate", "xtuner"):
            (tools / tool).write_text("#!/bin/sh\ntouch started\n")  # no Python: the versions are those of the project
            (tools / tool).chmod(0o755)
        env = {**os.environ, "PATH": f"{tools}:/usr/bin:/bin", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}
        done = subprocess.run(
            [*DSLINT, "-q", "--", *command.split()], cwd=folder, env=env, capture_output=True, text=True, timeout=100
        )
        found = {line.split()[1] for line in done.stderr.splitlines() if line.startswith(("<", *os.listdir(folder)))}
        if which == name:
            assert done.returncode == 1, done.stderr
            assert codes <= found
        else:
            assert not codes & found, done.stderr
        assert (folder / "started").exists() == (which != name)


def test_the_config_of_llava_does_not_start_on_two_processes(tmp_path: Path) -> None:
    folder = shutil.copytree(PROJECTS / "llava-loss-zero", tmp_path / "llava")
    words = [
        "torchrun",
        "--nproc_per_node",
        "2",
        "--standalone",
        "llava/train/train.py",
        "--deepspeed",
        "scripts/zero2.json",
    ]
    words += ["--output_dir", "out", "--bf16", "True", "--per_device_train_batch_size", "4"]
    old = [*DSLINT, "--deepspeed-version", "0.12.6", "--", *words]
    done = subprocess.run(old, cwd=folder, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (1, "")
    assert "scripts/zero2.json:19:25: DSL160 " in done.stderr


# What a launcher tells


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ("", "python t.py --x"),
        (
            "TORCHELASTIC_RUN_ID=none WORLD_SIZE=16 LOCAL_WORLD_SIZE=8",
            "torchrun --nnodes=2 --nproc-per-node=8 t.py --x",
        ),
        ("CROSS_RANK=0 LOCAL_SIZE=8 WORLD_SIZE=16", "deepspeed --num_nodes=2 --num_gpus=8 --no_local_rank t.py --x"),
        ("SLURM_STEP_NUM_TASKS=16 SLURM_STEP_NUM_NODES=2", "srun --nodes=2 --ntasks=16 python t.py --x"),
        ("SLURM_PROCID=0 SLURM_NTASKS=16", "python t.py --x"),
        ("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2", "mpirun -np 4 -npernode 2 python t.py --x"),
        ("PMI_SIZE=4", "mpirun -np 4 python t.py --x"),
        ("WORLD_SIZE=4 RANK=1", "python t.py --x"),
        ("WORLD_SIZE=4 LOCAL_WORLD_SIZE=x TORCHELASTIC_RUN_ID=1", "python t.py --x"),
    ],
)
def test_variables_tell_how_a_script_was_started(environ: str, words: str) -> None:
    given = dict(part.split("=") for part in environ.split())
    assert " ".join(script_launch(["t.py", "--x"], given)) == words


def test_the_rank_that_deepspeed_passes_is_none_of_the_words() -> None:
    given = {"CROSS_RANK": "0", "LOCAL_SIZE": "2", "WORLD_SIZE": "2"}
    assert script_launch(["t.py", "--local_rank=1", "--x"], given) == ["deepspeed", "--num_gpus=2", "t.py", "--x"]


def test_a_launcher_inside_a_task_is_no_task() -> None:
    step = {"SLURM_STEP_NUM_TASKS": "2"}
    assert task_launcher(["srun", "python", "t.py"], step) == []
    assert task_launcher(["torchrun", "t.py"], step) == ["srun", "--ntasks=2"]


@pytest.mark.parametrize(
    ("environ", "reports", "judges"),
    [
        ("", True, True),
        ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=0", True, True),
        ("RANK=3 WORLD_SIZE=8 LOCAL_RANK=3", False, False),
        ("RANK=8 WORLD_SIZE=16 LOCAL_RANK=0", False, True),
        ("RANK=3", True, True),
        ("RANK=3 WORLD_SIZE=1", True, True),
        ("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=2", False, True),
        ("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=2 SLURM_KILL_BAD_EXIT=1", False, False),
        ("SLURM_PROCID=0", True, True),
        ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1", False, False),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1", False, False),
    ],
)
def test_one_rank_reports_and_enough_of_them_look(environ: str, reports: bool, judges: bool) -> None:
    rank = rank_of(dict(part.split("=") for part in environ.split()))
    assert (rank.reports, rank.judges) == (reports, judges)
