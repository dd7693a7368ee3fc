"""The probe on several hosts: who ends an arm and how, a member that dies, and the real launchers.

Processes are started as srun would start them, with its variables. What starts torch says so.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Host, hosts, why_not

TESTS = Path(__file__).parents[1]
BARRIER = "collective-under-rank-guard/barrier"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and PR_SET_PDEATHSIG")


def environment(tmp: Path, **more: str) -> dict[str, str]:
    """Without variables of a launch around the tests, and with all temporary files in ``tmp``."""
    kept = {
        k: v for k, v in os.environ.items() if not re.match(r"SLURM_|OMPI_|TORCHELASTIC|MASTER_|(LOCAL_)?RANK|WORLD", k)
    }
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path.rstrip(os.pathsep), "TMPDIR": str(tmp), "OMP_NUM_THREADS": "1", **more}


def slurm(rank: int, world: int, job: str, nodes: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(world), "SLURM_STEP_NUM_TASKS": str(world), "SLURM_STEP_ID": "0",
        "SLURM_LOCALID": "0", "SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": nodes,
    }  # fmt: skip


def srun(world: int, tmp: Path, argv: list[str], **more: str) -> list[subprocess.Popen[str]]:
    job = str(random.randrange(10**9))
    return [
        subprocess.Popen(
            argv, env=environment(tmp, **slurm(rank, world, job, "127.0.0.1"), **more), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]  # fmt: skip


def drive(
    world: int, tmp: Path, act: str, others: str = "-", limit: int = 20, **more: str
) -> list[subprocess.Popen[str]]:
    return srun(world, tmp, [sys.executable, str(TESTS / "cluster_driver.py"), act, others, str(limit)], **more)


def ends(processes: list[subprocess.Popen[str]], patience: float = 60) -> list[tuple[int, str, str]]:
    """(exit code, output, errors) of each; kills what does not end."""
    try:
        texts = [process.communicate(timeout=patience) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def using(folder: Path) -> list[int]:
    """Processes that have the folder in their environment: all that were started for a run of the probe."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and str(folder).encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def left(folder: Path) -> list[str]:
    """Files of ours; torchrun leaves an empty folder for logs."""
    return [path.name for path in folder.iterdir() if not path.name.startswith("torchelastic_")]


@pytest.fixture
def tmp(tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, after which no file in it and no process may be left."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield folder
    deadline = time.monotonic() + 20
    while (using(folder) or left(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert using(folder) == []
    assert left(folder) == []


@pytest.mark.parametrize(
    ("act", "others", "kind", "text"),
    [
        ("return", "-", "ok", None),
        ("stall", "slow", "stall", "subprocess.py"),  # the others get on for 2.4 s: no stall before
        ("stall", "busy", "limit", None),  # the others work all the time
        ("raise", "-", "raise", "ValueError: as told"),
        ("signal", "stall", "signal", "SIGABRT"),
    ],
)
def test_the_states_of_all_members_decide(tmp: Path, act: str, others: str, kind: str, text: str | None) -> None:
    limit = 3 if kind == "limit" else 20
    codes = ends(drive(3, tmp, act, others, limit))
    assert [code for code, _, _ in codes] == [0, 0, 0], codes
    told = json.loads(codes[0][1].splitlines()[-1])
    assert told["kind"] == kind
    assert text is None or text in told["ranks"][0][1]
    if others == "slow":
        assert told["seconds"] > 2.4
        assert [rank[0] for rank in told["ranks"]] == ["stall", "ok", "ok"]
    if others == "-":
        assert [rank[2] for rank in told["ranks"][1:]] == [1, 2]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_member_that_dies_ends_the_run_of_all(tmp: Path, victim: int) -> None:
    processes = drive(3, tmp, "sleep", limit=60)
    assert processes[0].stdout is not None
    assert "where" in processes[0].stdout.readline()
    time.sleep(1.0)
    start = time.monotonic()
    processes[victim].send_signal(signal.SIGKILL)
    codes = ends(processes, 20)
    assert time.monotonic() - start < 15
    if victim == 0:
        assert [code for code, _, _ in codes] == [-signal.SIGKILL, 2, 2]
        assert all("rank 0 went away" in errors and errors.count("\n") == 1 for _, _, errors in codes[1:])
    else:
        assert codes[0][0] == 2
        assert re.fullmatch(r"error: rank 2 \(\S+\) went away: .*\n", codes[0][2])


def test_an_arm_is_run_again_when_a_fork_server_dies(tmp: Path) -> None:
    processes = drive(2, tmp, "slow", "slow")
    assert processes[0].stdout is not None
    assert "where" in processes[0].stdout.readline()
    deadline = time.monotonic() + 20
    while not (servers := [pid for pid in using(tmp) if is_server(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.8)
    os.kill(servers[-1], signal.SIGKILL)
    codes = ends(processes)
    assert [code for code, _, _ in codes] == [0, 0], codes
    assert json.loads(codes[0][1])["kind"] == "ok"


def is_server(pid: int) -> bool:
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        names = [Path(f"/proc/{number}/cmdline").read_bytes() for number in (pid, parent)]
    except OSError:
        return False
    return [b"forkserver" in name for name in names] == [True, False]


def test_members_die_with_their_launcher(tmp: Path) -> None:
    """The launcher starts both ranks and is killed, which nobody tells them."""
    launcher = """
import os, subprocess, sys
for rank in range(2):
    subprocess.Popen(sys.argv[1:], env={**os.environ, "SLURM_PROCID": str(rank)})
sys.stdin.read()
"""
    driver = [sys.executable, str(TESTS / "cluster_driver.py"), "sleep", "-", "60"]
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, *driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(tmp, **slurm(0, 2, str(random.randrange(10**9)), "127.0.0.1")),
    )  # fmt: skip
    assert process.stdout is not None
    assert "where" in process.stdout.readline()
    process.kill()
    process.communicate()


def test_ranks_that_do_not_come_are_named(tmp: Path) -> None:
    driver = [sys.executable, str(TESTS / "cluster_driver.py"), "return", "-", "20"]
    variables = slurm(0, 3, str(random.randrange(10**9)), "127.0.0.1")
    process = subprocess.Popen(
        driver, env=environment(tmp, **variables, PATIENCE="1.5"), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    ((code, _, errors),) = ends([process])
    assert code == 2
    assert "1 of 3 ranks came within 2 s, rank 1, 2 did not: does srun start one process for each rank" in errors


def test_a_launch_needs_names_and_no_paths(tmp: Path) -> None:
    for argv, told in ((["train.py"], "dslint probe PATHS"), (["--case", "no-such"], "unknown experiment `no-such`")):
        codes = ends(srun(2, tmp, [sys.executable, "-m", "dslint.probe", *argv]))
        assert [code for code, _, _ in codes] == [2, 2]
        assert told in codes[0][2]
        assert codes[0][2].count("\n") == 1
        assert codes[1][1:] == ("", "")


def test_torchrun_gives_the_verdict_that_one_machine_gives(tmp: Path) -> None:
    """Starts torch: the launcher is the real one."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "dslint.probe"]
    process = subprocess.Popen(
        [sys.executable, *command, "--case", BARRIER, "--format", "json"], env=environment(tmp), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ((code, output, errors),) = ends([process], 120)
    assert code == 0, errors
    report = json.loads(output)
    (result,) = report["results"]
    assert result["verdict"] == "CONFIRMED", result["reason"]
    assert re.match(r"rank 0 waits in barrier .*; rank 1 finished", result["reason"])
    assert "rank 1 never issued collective #1, barrier" in result["explanation"]
    assert "2 ranks on 1 host (torchrun)" in report["machine"]


def test_srun_runs_two_ranks_of_three_when_the_experiment_wants_two(tmp: Path) -> None:
    """The whole command, as srun starts it; this experiment needs no torch."""
    command = [sys.executable, "-m", "dslint.probe", "--case", "local-rank-without-type/is-zero"]
    codes = ends(srun(3, tmp, [*command, "--format", "json"]), 120)
    assert [code for code, _, _ in codes] == [0, 0, 0], codes
    assert all(output == "" for _, output, _ in codes[1:])
    (result,) = json.loads(codes[0][1])["results"]
    assert result["verdict"] == "CONFIRMED", result["reason"]
    assert len(result["fixed"]["ranks"]) == 2


@pytest.fixture(scope="module")
def can_make_hosts() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


def start(host: Host, tmp: Path, argv: list[str], **more: str) -> subprocess.Popen[str]:
    return host.start([sys.executable, *argv], environment(tmp, **more))


@pytest.mark.usefixtures("can_make_hosts")
def test_four_hosts(tmp: Path) -> None:
    with hosts(4, tmp) as made:
        job = str(random.randrange(10**9))
        driver = [str(TESTS / "cluster_driver.py"), "stall", "slow", "20"]
        processes = [
            start(host, tmp, driver, **slurm(host.number, 4, job, "node[0-3]"), MASTER_ADDR=made[0].address)
            for host in made
        ]
        codes = ends(processes)
    assert [code for code, _, _ in codes] == [0] * 4, codes
    where, told = map(json.loads, codes[0][1].splitlines())
    assert where["where"] == "4 ranks on 4 hosts (srun)"
    assert [rank[0] for rank in told["ranks"]] == ["stall", "ok", "ok", "ok"]


@pytest.mark.usefixtures("can_make_hosts")
def test_torchrun_on_two_hosts(tmp: Path) -> None:
    """Starts torch: an agent on each host; the ranks' own group has to find its way between them."""
    probe = ["-m", "dslint.probe", "--case", BARRIER, "--format", "json"]
    with hosts(2, tmp) as made:
        # Ports of these hosts are nobody else's.
        meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", made[0].address, "--master-port", "29500"]
        processes = [
            start(host, tmp, ["-m", "torch.distributed.run", *meet, "--node-rank", str(host.number), *probe])
            for host in made
        ]
        codes = ends(processes, 120)
    assert [code for code, _, _ in codes] == [0, 0], codes
    report = json.loads(codes[0][1])
    assert report["results"][0]["verdict"] == "CONFIRMED", report["results"][0]["reason"]
    assert "2 ranks on 2 hosts (torchrun)" in report["machine"]
