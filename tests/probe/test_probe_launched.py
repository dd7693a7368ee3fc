"""What launchers put into the environment, and how the processes of a launch find each other."""

from __future__ import annotations

import inspect
import os
import re
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from dslint.probe.arms import ProbeError
from dslint.probe.cluster import hub as hub_module
from dslint.probe.cluster.devices import interface_of
from dslint.probe.cluster.hub import Hub
from dslint.probe.cluster.launched import Launched, first_host, launched
from dslint.probe.cluster.leader import Cluster
from dslint.probe.cluster.wire import Closed, Line, admit, join, listen
from dslint.probe.command import _backend
from dslint.probe.environment import environment, network
from dslint.probe.experiment import Expect, Experiment
from dslint.probe.gpus import visible
from dslint.probe.outcome import Kind
from dslint.probe.registry import Entry, entries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and PR_SET_PDEATHSIG")

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node7",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job1",
}  # fmt: skip
SRUN = {
    "SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "gpu[003-004]", "SLURM_JOB_NODELIST": "gpu[001-008]",
}  # fmt: skip
OMPI = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "10.0.0.1",
}  # fmt: skip


def test_torchrun() -> None:
    place = launched(TORCHRUN)
    assert place is not None
    assert (place.launcher, place.rank, place.world, place.local, place.local_world) == ("torchrun", 5, 8, 1, 4)
    assert (place.address, place.port) == ("node7", 29501)  # torchrun's own store listens at 29500


def test_srun_says_the_step_and_its_first_host() -> None:
    place = launched(SRUN)
    assert place is not None
    assert (place.launcher, place.rank, place.world, place.local, place.address) == ("srun", 3, 4, 1, "gpu003")
    other = launched({**SRUN, "SLURM_STEP_ID": "1"})
    assert other is not None
    assert other.secret != place.secret  # two steps of one job at a time


def test_mpirun_and_deepspeed() -> None:
    place = launched(OMPI)
    assert place is not None
    assert (place.launcher, place.rank, place.world, place.address) == ("mpirun", 2, 4, "10.0.0.1")
    deepspeed = {**TORCHRUN, "CROSS_RANK": "1", "LOCAL_SIZE": "4"}
    del deepspeed["TORCHELASTIC_RUN_ID"]
    place = launched(deepspeed)
    assert place is not None
    assert (place.launcher, place.local_world) == ("deepspeed", 4)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"},
        {**SRUN, "SLURM_STEP_ID": str(0xFFFFFFFA)},  # the shell that salloc opens
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8"},
    ],
)
def test_alone(env: dict[str, str]) -> None:
    assert launched(env) is None


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({**TORCHRUN, "RANK": "8"}, "RANK is 8 and WORLD_SIZE is 8"),
        ({**TORCHRUN, "RANK": "first"}, "RANK must be a whole number, found `first`"),
        ({**TORCHRUN, "MASTER_ADDR": ""}, "set MASTER_ADDR"),
        ({**OMPI, "MASTER_ADDR": ""}, "mpirun does not say where rank 0 is"),
    ],
)
def test_variables_that_make_no_sense(env: dict[str, str], told: str) -> None:
    with pytest.raises(ProbeError, match=told):
        launched(env)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu[003-007,9],login1", "gpu003"), ("login1,gpu[1-2]", "login1"), ("rack[2-3]n[05,07-09]", "rack2n05"),
        ("single", "single"), ("a[10]", "a10"),
    ],
)  # fmt: skip
def test_the_first_host_of_a_list_of_slurm(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def here(secret: str = "s", rank: int = 0, world: int = 2) -> Launched:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return Launched("test", rank, world, rank, world, "127.0.0.1", min(port, 60000), secret)


def answering(action: Callable[[socket.socket], object], server: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=lambda: action(server.accept()[0]), daemon=True)
    thread.start()
    return thread


def test_a_foreign_server_on_the_port_gets_no_byte_and_is_passed_by() -> None:
    place = here()
    got: list[bytes] = []

    def foreign(connection: socket.socket) -> None:
        connection.sendall(b"220 mail ready\r\n")
        connection.settimeout(3)
        got.append(connection.recv(100))

    with socket.create_server(("127.0.0.1", place.port)) as server:
        thread = answering(foreign, server)
        with listen(place) as own:
            assert own.getsockname()[1] > place.port
            told: list[int | None] = []
            asked = answering(lambda c: told.append(admit(Line(c), "s", 2)), own)
            join(replace(place, rank=1), 10).close()
            asked.join(5)
        thread.join(5)
    assert got == [b""]
    assert told == [1]


def test_who_does_not_know_the_secret_is_not_admitted() -> None:
    place = here()
    told: list[int | None] = []
    with listen(place) as own:
        thread = answering(lambda c: told.append(admit(Line(c), "s", 2)), own)
        with pytest.raises(ProbeError, match=r"rank 1 does not reach rank 0 at 127\.0\.0\.1"):
            join(replace(place, rank=1, secret="other"), 0.3)
        thread.join(8)
    assert told == [None]


@pytest.mark.parametrize("sent", [b"nonsense\n", b"[1]\n", b'{"open": ', b""])
def test_what_is_no_message_closes_the_line(sent: bytes) -> None:
    left, right = socket.socketpair()
    line = Line.__new__(Line)
    vars(line).update(_sock=left, _lock=threading.Lock(), _buffer=bytearray())
    right.sendall(sent)
    right.close()
    with pytest.raises(Closed):
        line.receive(1.0)
    left.close()


def test_a_member_that_falls_silent_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host has lost power, or the process is stopped: the connection stays, nothing comes."""
    monkeypatch.setattr(hub_module, "SILENCE", 0.5)
    place = here(world=1)
    hub = Hub(place)
    line = join(place, 5)
    line.send({"hello": {"host": "node9", "pid": 1, "version": "1", "gpus": [], "local": 0, "machine": "m"}})
    hub.gather(5)
    with pytest.raises(ProbeError, match=r"nothing was heard of rank 0 \(node9\)"):
        hub.ask({"op": "warm"}, [0], 20)
    line.close()
    hub.end(1)


def test_two_processes_with_one_rank_end_the_run() -> None:
    place = here(world=2)
    hub = Hub(place)
    lines = [join(place, 5), join(place, 5)]
    for number, line in enumerate(lines):
        line.send(
            {"hello": {"host": f"node{number}", "pid": 1, "version": "1", "gpus": [], "local": 0, "machine": "m"}}
        )
    with pytest.raises(ProbeError, match="two processes say that they are rank 0: node"):
        hub.gather(10)
    for line in lines:
        line.close()
    hub.end(1)


def test_gpus_are_those_that_cuda_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    lines = "".join(f"GPU {n}: NVIDIA H200 (UUID: GPU-{n}{n})\\n" for n in range(4))
    tool.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert visible(env) == ["GPU-00", "GPU-11", "GPU-22", "GPU-33"]
    assert visible({**env, "CUDA_VISIBLE_DEVICES": "2,0"}) == ["GPU-22", "GPU-00"]
    assert visible({**env, "CUDA_VISIBLE_DEVICES": "GPU-3,7,1"}) == ["GPU-33"]
    assert visible({**env, "CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible({"PATH": "/nowhere"}) == []
    monkeypatch.setenv("PATH", env["PATH"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert _backend(Namespace(backend="auto")) == ("nccl", 2)  # ranks see no others


def test_the_network_of_the_user_is_kept_between_hosts_and_only_there(tmp_path: Path) -> None:
    outer = {"NCCL_IB_HCA": "mlx5", "GLOO_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "INFO", "PATH": "/bin"}
    assert environment(tmp_path, "x", False, outer)["GLOO_SOCKET_IFNAME"] == "lo"
    found = environment(tmp_path, "x", True, outer, network("eth0", outer))
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_IB_HCA"]) == ("ib0", "mlx5")
    assert not {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME"} & set(found)
    assert network("eth0", {})["GLOO_SOCKET_IFNAME"] == "eth0"
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""


def _entry(code: str = "", **facts: object) -> Entry:
    module = ModuleType("x")
    exec(code, vars(module))  # noqa: S102 - an experiment module in one line
    return Entry(Experiment("x", "acts", (), Expect((Kind.STALL,)), **facts), module)  # type: ignore[arg-type]


def test_what_cannot_run_on_a_cluster_is_refused() -> None:
    cluster = Cluster(here(world=4))
    told = "a machine without a launcher around it"
    assert told in cluster.refuses(_entry("def fixed(rank): rank.command(['ls'])", ranks=1))
    assert told in cluster.refuses(_entry("def fixed(rank): from dslint.probe.parts.launcher import torchrun"))
    assert "8 ranks, the launcher started 4" in cluster.refuses(_entry(ranks=8))
    assert "one host" in cluster.refuses(_entry(one_host=True))
    assert cluster.refuses(_entry(scales=True)) == ""


def test_ranks_that_share_files_are_kept_on_one_host() -> None:
    # Their ranks write below the folder and read nothing there that another wrote.
    alone = {"accelerate_call_under_guard", "collective_under_rank_guard", "engine_call_under_rank_guard"}
    for entry in entries():
        shares = re.search(r"rank\.folder|parts\.hosts|127\.0\.0\.1", inspect.getsource(entry.module))
        if shares and entry.experiment.ranks > 1 and not entry.starts_programs:
            assert entry.experiment.one_host or entry.stem in alone, entry.stem


def test_experiments_of_launchers_are_known_as_such() -> None:
    """What the code names decides; no experiment has to say it of itself."""
    known = {entry.stem for entry in entries() if entry.starts_programs}
    assert {"broken_continuation", "launcher_not_told", "torchrun_flags", "local_rank_argument"} <= known
    assert "collective_under_rank_guard" not in known
    for entry in entries():
        uses = re.search(r"\brank\.command\(|parts\.launcher|parts\.dslaunch", inspect.getsource(entry.module))
        assert bool(uses) == entry.starts_programs, entry.stem


def test_devices_decide_the_backend() -> None:
    cluster = Cluster(here(world=4))
    experiment, two = _entry(scales=True).experiment, _entry().experiment

    def see(*gpus: tuple[str, int, list[str]]) -> None:
        hellos = {rank: {"machine": host, "local": local, "gpus": own} for rank, (host, local, own) in enumerate(gpus)}
        cluster._hub = type("Hub", (), {"hellos": hellos})()  # type: ignore[assignment]
        cluster.gpus = len({cluster._device(rank) for rank in hellos})

    # Two hosts of two GPUs; one visible GPU for each process (srun --gpus-per-task=1); one GPU for two processes.
    see(("a", 0, ["A", "B"]), ("a", 1, ["A", "B"]), ("b", 0, ["C", "D"]), ("b", 1, ["C", "D"]))
    assert (cluster.gpus, cluster.backend(experiment)) == (4, "nccl")
    see(("a", 0, ["A"]), ("a", 1, ["B"]), ("b", 0, ["C"]), ("b", 1, ["D"]))
    assert cluster.backend(experiment) == "nccl"
    see(("a", 0, ["A"]), ("b", 0, ["B"]), ("a", 1, ["A"]), ("b", 1, ["B"]))
    assert (cluster.gpus, cluster.backend(experiment), cluster.backend(two)) == (2, "gloo", "nccl")
    assert cluster.backend(replace(two, cpu_only=True)) == "gloo"
