"""``--nnodes``, ``--nproc-per-node``, ``--world-size`` and ``[tool.dslint.launch]``: they fill what no file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import dslint

BATCH = '{"train_batch_size": %d, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
TRAIN = """\
import argparse
import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
engine, *_ = deepspeed.initialize(args=parser.parse_args(), model=None)
"""
REST = "train.py --deepspeed_config ds.json\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ds.json").write_text(BATCH % 28)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*arguments: str) -> dict[str, Any]:
    done = dslint("plan", "--format", "json", *arguments)
    assert done.code == 0, done.err
    (command,) = json.loads(done.out)["commands"]
    return dict(command)


def counts(*arguments: str) -> tuple[int | None, int | None, int | None]:
    command = plan(*arguments)
    return command["nodes"], command["processes_per_node"], command["world_size"]


def messages(*arguments: str) -> dict[str, str]:
    done = dslint("--no-cache", *arguments)
    return {line.split()[1]: line for line in done.out.splitlines()}


@pytest.mark.parametrize(
    ("launch", "flags", "expected"),
    [
        ("torchrun --nnodes $N --nproc_per_node $G ", "--nnodes 2 --nproc-per-node 8", (2, 8, 16)),
        ("torchrun --nnodes $N --nproc_per_node $G ", "--world-size 16", (None, None, 16)),
        ("torchrun --nnodes $N --nproc_per_node 8 ", "--world-size 16", (2, 8, 16)),
        ("torchrun --nnodes $N --nproc_per_node 8 ", "--world-size 12", (None, 8, 12)),
        ("torchrun --nnodes 2 --nproc_per_node $G ", "--nproc-per-node 4", (2, 4, 8)),
        ("torchrun --nnodes 2 --nproc_per_node 8 ", "--nnodes 4 --nproc-per-node 4", (2, 8, 16)),
        ("torchrun --nproc_per_node 8 ", "--nnodes 4", (4, 8, 32)),
        ("torchrun --nproc_per_node 8 ", "--world-size 16", (2, 8, 16)),
        ("torchrun --nproc_per_node 8 ", "--world-size 12", (1, 8, 8)),
        ("torchrun ", "--world-size 16", (None, None, 16)),
        ("torchrun ", "--nproc-per-node 4", (1, 4, 4)),
        ("PET_NNODES=2 torchrun --nproc_per_node 8 ", "--nnodes 4", (2, 8, 16)),
        ("deepspeed ", "--nproc-per-node 8", (1, 8, 8)),
        ("deepspeed ", "--nnodes 2 --nproc-per-node 8", (2, 8, 16)),
        ("deepspeed --num_gpus 4 ", "--nnodes 2", (2, 4, 8)),
        ("deepspeed --num_nodes 1 --num_gpus 4 ", "--nnodes 2", (1, 4, 4)),
        ("deepspeed --include localhost:0,1 ", "--nnodes 2 --nproc-per-node 8", (1, 2, 2)),
        ("accelerate launch ", "--nnodes 2 --nproc-per-node 4", (2, 4, 8)),
        ("accelerate launch --num_processes 8 ", "--nnodes 2", (2, 4, 8)),
        ("accelerate launch --num_processes 8 ", "--nnodes 3", (None, None, 8)),
        ("accelerate launch --num_processes 8 ", "--nnodes 2 --nproc-per-node 4", (2, 4, 8)),
        ("python ", "--world-size 8", (None, None, 8)),
    ],
)
def test_stated_numbers_fill_what_no_file_says(
    here: Path, launch: str, flags: str, expected: tuple[int | None, ...]
) -> None:
    (here / "run.sh").write_text(launch + REST)
    assert counts(*flags.split()) == expected


OPEN_MPI = "# hosts\nnode1 slots=4 max_slots=8\nnode2 slots=4\n"


@pytest.mark.parametrize(
    ("launch", "hosts", "expected"),
    [
        ("mpirun --hostfile hosts python ", OPEN_MPI, (2, 4, 8)),
        ("mpirun -np 8 --hostfile hosts python ", OPEN_MPI, (2, 4, 8)),
        ("mpirun -np 4 --hostfile hosts python ", OPEN_MPI, (None, None, 4)),  # the mapping decides
        ("mpirun -np 8 -machinefile hosts python ", "node1:4\nnode2:4  # spare\n", (2, 4, 8)),
        ("mpiexec -f hosts python ", "node1:4\nnode2:4\n", (None, None, None)),  # MPICH starts one process
        ("mpirun --hostfile hosts python ", "node1 slots=4\nnode2 slots=2\n", (2, None, 6)),
        ("mpirun --hostfile hosts python ", "node1\nnode2\n", (None, None, None)),
        ("mpirun --hostfile hosts python ", "node1 slots=4\nnode1 slots=4\n", (None, None, None)),
        ("mpirun --hostfile hosts -H node1:2 python ", OPEN_MPI, (1, 2, 2)),
        ("mpirun --hostfile /etc/hosts python ", OPEN_MPI, (None, None, None)),
        ("printf x > hosts\nmpirun --hostfile hosts python ", OPEN_MPI, (None, None, None)),
        ("horovodrun -np 8 --hostfile hosts python ", OPEN_MPI, (2, 4, 8)),
        ("deepspeed --hostfile hosts ", "node1 slots=4\nnode2 slots=4\n", (2, 4, 8)),
        ("deepspeed --hostfile hosts ", "node1 slots=4\nnode2 slots=2\n", (2, None, 6)),
    ],
)
def test_host_files_of_the_project_are_read(
    here: Path, launch: str, hosts: str, expected: tuple[int | None, ...]
) -> None:
    (here / "hosts").write_text(hosts)
    (here / "run.sh").write_text(launch + REST)
    assert counts() == expected


def test_the_lines_of_a_host_file_are_the_places(here: Path) -> None:
    (here / "hosts").write_text(OPEN_MPI)
    (here / "run.sh").write_text("mpirun --hostfile hosts python " + REST)
    places = plan()["origins"]["world_size"]
    assert [(place["file"], place["line"]) for place in places] == [("run.sh", 1), ("hosts", 2), ("hosts", 3)]
    assert plan("--nnodes", "4")["remarks"][-1].startswith("--nnodes 4 is not used: the run has 2 (run.sh:1, hosts:2")


def test_plain_python_without_deepspeed_stays_one_process(here: Path) -> None:
    (here / "run.sh").write_text("python convert.py\n")
    assert counts("--world-size", "8") == (None, None, None)


def test_a_contradiction_is_a_remark_and_the_file_counts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    (here / "run.sh").write_text("torchrun --nnodes 1 --nproc_per_node 8 " + REST)
    command = plan("--nproc-per-node", "4", "--nnodes", "1")
    assert command["world_size"] == 8
    assert "--nproc-per-node 4 is not used: the run has 8 (run.sh:1) processes on each node" in command["remarks"]
    assert not any("--nnodes" in remark for remark in command["remarks"][:1])
    text = dslint("plan", "--nproc-per-node", "4").out
    assert "stated   --nproc-per-node 4 is not used" in text


def test_the_settings_line_is_the_place_of_the_number(here: Path) -> None:
    (here / "run.sh").write_text("torchrun --nnodes $N --nproc_per_node 8 " + REST)
    (here / "pyproject.toml").write_text("[tool.dslint.launch]\nnnodes = 2\n")
    command = plan()
    assert command["origins"]["nodes"] == [{"file": "pyproject.toml", "line": 2, "text": "nnodes = 2"}]
    assert {p["file"] for p in command["origins"]["world_size"]} == {"pyproject.toml", "run.sh"}
    assert "is 28, but micro batch 4 x accumulation steps 1 x world size 16 = 64" in messages()["DSL408"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--world-size 8", "x world size 8 (--world-size 8) = 32"),
        ("--nnodes 2 --nproc-per-node 4", "x world size 8 (--nnodes 2, --nproc-per-node 4) = 32"),
    ],
)
def test_batch_rules_use_it_for_commands_and_for_configs_alone(here: Path, flags: str, says: str) -> None:
    assert "DSL130" not in messages("ds.json")
    assert says.partition(" (")[0] in messages(*flags.split(), "ds.json")["DSL130"]
    (here / "run.sh").write_text("torchrun --nnodes $N --nproc_per_node $G " + REST)
    assert "DSL408" not in messages()
    found = messages(*flags.split())
    assert says in found["DSL408"]
    assert "DSL130" not in found


def test_a_config_whose_command_says_the_number_is_not_judged_by_another(here: Path) -> None:
    (here / "ds.json").write_text(BATCH % 32)
    (here / "run.sh").write_text("deepspeed --num_nodes 1 --num_gpus 8 " + REST)
    assert messages() == {}
    assert messages("--world-size", "7") == {}
    (here / "README.md").write_text("```bash\ndeepspeed --num_gpus 8 " + REST + "```\n")
    assert messages("--world-size", "7") == {}
    (here / "run.sh").unlink()
    assert list(messages("--world-size", "7")) == ["DSL130"]


def test_patterns_of_files_have_numbers_of_their_own(here: Path) -> None:
    (here / "slurm").mkdir()
    for name in ("slurm/a.sbatch", "run.sh"):
        (here / name).write_text("torchrun --nnodes $N --nproc_per_node $G " + REST)
    (here / "dslint.toml").write_text(
        "launch = { nproc-per-node = 8 }\n"
        '[launches."slurm/*.sbatch"]\nnnodes = 4\n[launches."*.json"]\nworld-size = 5\n'
    )
    report = json.loads(dslint("plan", "--format", "json").out)
    assert [(c["file"], c["nodes"], c["world_size"]) for c in report["commands"]] == [
        ("run.sh", None, None),
        ("slurm/a.sbatch", 4, 32),
    ]
    assert report["commands"][1]["origins"]["nodes"][0]["line"] == 3
    # A flag for all files beats the patterns of the settings.
    report = json.loads(dslint("plan", "--format", "json", "--nnodes", "2", "--nproc-per-node", "2").out)
    assert [c["world_size"] for c in report["commands"]] == [4, 4]


def test_numbers_that_contradict_each_other_are_refused(here: Path) -> None:
    done = dslint("--nnodes", "2", "--nproc-per-node", "8", "--world-size", "8", "ds.json")
    assert (done.code, done.out) == (2, "")
    assert "`nnodes` 2 x `nproc-per-node` 8 is 16, but `world-size` says 8" in done.err
    (here / "dslint.toml").write_text("world-size = 8\n[launch]\nnnodes = 3\n")
    assert "dslint.toml:2: `world-size` 8 is no multiple of `nnodes` 3" in dslint("plan").err
    (here / "dslint.toml").write_text('[launches."*.sh"]\nnnode = 3\n')
    assert "unknown key `launches.*.sh.nnode`; did you mean `nnodes`?" in dslint("plan").err


def test_earlier_results_of_another_number_are_not_used(here: Path, tmp_path: Path) -> None:
    (here / "train.py").write_text(
        "import torch.distributed as dist\n\nparts = list(range(6))\nfor part in parts[dist.get_rank() :: 4]:\n"
        "    dist.barrier()\n"
    )
    cache = ("--cache-dir", str(tmp_path / "cache"), "train.py")
    found = [dslint(*flags, *cache).out for flags in ((), ("--world-size", "1"), (), ("--world-size", "1"))]
    assert found[0] == found[2]
    assert found[1] == found[3]
