"""The process model of the probe: how arms end, and that nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from probe_experiments import plain

from dslint.probe.environment import environment
from dslint.probe.experiment import Case
from dslint.probe.janitor import members
from dslint.probe.outcome import ArmOutcome, Kind
from dslint.probe.supervisor import Supervisor

TESTS = str(Path(__file__).parents[1])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and PR_SET_PDEATHSIG")


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = TESTS + (os.pathsep + before if before else "")
    try:
        with Supervisor() as made:
            yield made
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    assert not made.root.exists()
    assert members(made.run_id) == []


def run(supervisor: Supervisor, act: str, limit: float = 20, fixed: bool = False) -> ArmOutcome:
    experiment = replace(plain.EXPERIMENT, limit=limit)
    case = Case(act, {"act": act})
    return supervisor.arm(experiment, "probe_experiments.plain", case, fixed=fixed)[0]


def test_an_arm_that_returns_is_ok(supervisor: Supervisor) -> None:
    outcome = run(supervisor, "return", fixed=True)
    assert (outcome.kind, outcome.values) == (Kind.OK, [0, 1])


def test_a_rank_that_waits_for_others_is_a_stall_with_its_stack(supervisor: Supervisor) -> None:
    outcome = run(supervisor, "stall")
    assert outcome.kind is Kind.STALL
    assert any("written (plain.py" in frame for frame in outcome.ranks[0].stack)
    assert outcome.ranks[1].kind is Kind.OK
    assert outcome.seconds < 8


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        ("raise", Kind.RAISE, "ValueError: as told"),
        ("signal", Kind.SIGNAL, "SIGABRT"),
        ("exit", Kind.SIGNAL, "exit code 7"),
        ("memory", Kind.RAISE, "MemoryError"),
        ("not json", Kind.RAISE, "no JSON"),
    ],
)
def test_how_a_rank_can_end(supervisor: Supervisor, act: str, kind: Kind, text: str) -> None:
    outcome = run(supervisor, act)
    assert outcome.kind is kind
    assert text in outcome.text


@pytest.mark.parametrize("act", ["sleep", "busy"])
def test_a_rank_that_waits_for_nobody_is_no_stall(supervisor: Supervisor, act: str) -> None:
    assert run(supervisor, act, limit=3).kind is Kind.LIMIT


def test_a_slow_rank_that_gets_on_is_no_stall(supervisor: Supervisor) -> None:
    assert run(supervisor, "slow").kind is Kind.OK


def test_a_starved_rank_is_no_stall(supervisor: Supervisor) -> None:
    burn = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert run(supervisor, "busy", limit=4).kind is Kind.LIMIT
        assert run(supervisor, "stall").kind is Kind.STALL
    finally:
        for process in burn:
            process.kill()
            process.wait()


def test_spawned_ranks_do_what_forked_ones_do() -> None:
    """The way of the GPU, here without one: every rank is a process of its own from the start."""
    from dslint.probe.registry import entries

    entry = next(e for e in entries() if e.experiment.name == "collective-under-rank-guard")
    with Supervisor(spawn=True) as supervisor:
        kinds = [
            supervisor.arm(entry.experiment, entry.stem, entry.experiment.cases[0], fixed=fixed)[0].kind
            for fixed in (True, False)
        ]
    assert kinds == [Kind.OK, Kind.STALL]


def test_the_backend_follows_the_gpus() -> None:
    two = plain.EXPERIMENT
    torch_two = replace(two, flavour="torch")
    assert [Supervisor(gpus).backend(torch_two) for gpus in (0, 1, 2)] == ["gloo", "gloo", "nccl"]
    assert [Supervisor(gpus).devices(torch_two) for gpus in (0, 1, 2)] == [0, 1, 2]
    assert Supervisor(2).backend(two) == "gloo"
    assert Supervisor(2).devices(replace(torch_two, cpu_only=True)) == 0
    assert (Supervisor(2).spawn, Supervisor(0).spawn) == (True, False)


def test_the_environment_of_a_job_stays_outside(tmp_path: Path) -> None:
    outer = {"PATH": "/bin", "RANK": "3", "MASTER_ADDR": "x", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "1,2"}
    on_cpu, on_gpu = (environment(tmp_path, "id", cuda, outer) for cuda in (False, True))
    assert not {"RANK", "MASTER_ADDR", "NCCL_DEBUG"} & (on_cpu.keys() | on_gpu.keys())
    assert (on_cpu["CUDA_VISIBLE_DEVICES"], on_gpu["CUDA_VISIBLE_DEVICES"]) == ("", "1,2")
    assert on_cpu["DS_ACCELERATOR"] == "cpu"
    assert "DS_ACCELERATOR" not in on_gpu
    assert on_cpu["HOME"].startswith(str(tmp_path))


def test_a_grandchild_in_a_session_of_its_own_is_swept() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(TESTS).parent), TESTS])}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "grandchild"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert driver.stdout is not None
    run_id, root = driver.stdout.readline().split()
    assert driver.wait(timeout=60) == 0
    assert members(run_id) == []
    assert not Path(root).exists()


DRIVER = """
import sys
from dslint.probe.environment import environment
from dslint.probe.experiment import Case
from dslint.probe.arms import ProbeError
from dslint.probe.supervisor import Supervisor
from probe_experiments import plain
with Supervisor() as supervisor:
    supervisor.warm("plain")
    print(supervisor.run_id, supervisor.root, flush=True)
    case = Case("x", {"act": sys.argv[1]})
    try:
        print(supervisor.arm(plain.EXPERIMENT, "probe_experiments.plain", case, fixed=False)[0].kind, flush=True)
    except ProbeError as error:
        print(error)
"""


def _ranks(run_id: str) -> tuple[list[int], list[int]]:
    """(fork servers, ranks) of a run."""
    servers, ranks = [], []
    for pid in members(run_id):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        (ranks if parent in members(run_id) else servers).append(pid)
    return servers, ranks


@pytest.mark.parametrize("victim", ["supervisor", "rank", "fork server", "interrupt"])
def test_nothing_is_left_when_somebody_is_killed(victim: str, full: bool) -> None:
    """Kill at a random moment: no process and no file may be left. 60 rounds in all, 200 with ``--full``."""
    generator = random.Random(victim)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(TESTS).parent), TESTS])}
    for round_ in range(50 if full else 15):
        act = generator.choice(["stall", "busy", "grandchild", "slow"])
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, act], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip
        assert driver.stdout is not None
        run_id, root = driver.stdout.readline().split()
        time.sleep(generator.random() * 0.3)
        if victim in ("supervisor", "interrupt"):
            driver.send_signal(signal.SIGKILL if victim == "supervisor" else signal.SIGINT)
        else:
            servers, ranks = _ranks(run_id)
            for pid in ranks if victim == "rank" else servers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            time.sleep(generator.random() * 0.2)
            driver.kill()  # a stall of the second try would take its time
        driver.wait(timeout=30)
        driver.stdout.close()
        deadline = time.monotonic() + 20
        while (members(run_id) or Path(root).exists()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert members(run_id) == [], f"round {round_} ({act}) left processes"
        assert not Path(root).exists(), f"round {round_} ({act}) left files"
