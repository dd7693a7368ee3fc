"""D6 to D14: GPUs, network, hosts, limits, ports, variables, clocks, Slurm and accelerate, good and bad."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from fake_machine import GIB, NOW, FakeMachine, only, statuses

from dslint.doctor.checks import d06_gpus as d06
from dslint.doctor.checks import d07_network_interface as d07
from dslint.doctor.checks import d08_hosts as d08
from dslint.doctor.checks import d09_limits as d09
from dslint.doctor.checks import d10_port_in_use as d10
from dslint.doctor.checks import d11_leftover_launch_variables as d11
from dslint.doctor.checks import d12_clock as d12
from dslint.doctor.checks import d13_slurm_context as d13
from dslint.doctor.checks import d14_accelerate_default_config as d14
from dslint.doctor.environment import Python
from dslint.doctor.gpus import topology
from dslint.doctor.machine import Disk, Machine
from dslint.doctor.ssh import read_hostfile


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


# ---- D6

# number, name, memory, driver, uncorrected errors, MIG, compute capability
H100 = "{}, NVIDIA H100 80GB HBM3, 81559 MiB, 550.54.15, 0, Disabled, 9.0"
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tSYS\tSYS\tPIX\t0-15\t0
GPU1\tNV12\t X \tSYS\tSYS\tPIX\t0-15\t0
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t16-31\t1
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t16-31\t1
NIC0\tPIX\tPIX\tSYS\tSYS\t X

Legend:
  X    = Self
"""


SMI = """\
fields() {{ while IFS=, read -r n name mem drv ecc mig cap; do eval "echo \\"$1\\""; done < "$TMPDIR/rows"; }}
case "$1" in
  --query-gpu=index,ecc*) fields '$n,$ecc' ;;
  --query-gpu=index,mig*) fields '$n,$mig' ;;
  --query-gpu=index,compute_cap*) {capability} ;;
  --query-gpu=*) {query} ;;
  topo) while IFS= read -r line; do printf '%s\\n' "$line"; done < "$TMPDIR/topo" ;;
  "") echo "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: {cuda}  |" ;;
esac
"""


def gpus(
    fake: FakeMachine, *rows: str, cuda: str = "12.4", query: str = "fields '$n,$name,$mem,$drv'",
    capability: str = "fields '$n,$cap'",
) -> None:  # fmt: skip
    """An nvidia-smi that answers as the real one."""
    (fake.folder / "rows").write_text("".join(f"{row}\n" for row in rows))
    (fake.folder / "topo").write_text(TOPOLOGY)
    fake.program("nvidia-smi", SMI.format(query=query, capability=capability, cuda=cuda))


def test_gpus_that_are_alike(fake: FakeMachine) -> None:
    fake.torch("2.5.0+cu124", cuda="12.4")
    gpus(fake, *(H100.format(n) for n in range(4)))
    outcome = only(d06.check(fake.machine()), "ok")
    assert outcome.found == "4 x NVIDIA H100 80GB HBM3 (81559 MiB), driver 550.54.15"
    assert outcome.reason == "joined by NV12 (2 pairs), SYS (4 pairs)"
    assert topology(fake.machine()) == {"NV12": 2, "SYS": 4}


def test_no_gpu_where_none_is_needed(fake: FakeMachine) -> None:
    fake.torch()
    only(d06.check(fake.machine()), "ok")


def test_gpus_of_amd_are_not_judged(fake: FakeMachine) -> None:
    fake.torch("2.9.0+rocm6.4", hip="6.4.0")
    assert "ROCm" in only(d06.check(fake.machine()), "unknown").reason


def test_no_gpu_with_a_torch_for_cuda(fake: FakeMachine) -> None:
    fake.torch("2.5.0+cu124", cuda="12.4")
    assert "login node" in only(d06.check(fake.machine()), "unknown").reason


@pytest.mark.parametrize(
    ("row", "status", "says"),
    [
        ("0, NVIDIA A100, 40960 MiB, 550, 3, Disabled, 8.0", "error", "memory errors"),
        ("0, NVIDIA A100, 40960 MiB, 550, 0, Enabled, 8.0", "warning", "MIG"),
        ("0, NVIDIA RTX 4090, 24564 MiB, 550, [N/A], [N/A], 8.9", "ok", "4090"),
    ],
)
def test_state_of_a_gpu(fake: FakeMachine, row: str, status: str, says: str) -> None:
    gpus(fake, row)
    assert says in only(d06.check(fake.machine()), status).found


def test_different_gpus(fake: FakeMachine) -> None:
    gpus(fake, H100.format(0), "1, NVIDIA A100, 40960 MiB, 550, 0, Disabled, 8.0")
    assert "different GPUs" in only(d06.check(fake.machine()), "warning").found


def test_a_driver_that_does_not_answer(fake: FakeMachine) -> None:
    gpus(fake, query='echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    assert "version mismatch" in only(d06.check(fake.machine()), "error").found
    (fake.bin / "nvidia-smi").unlink()
    fake.proc("driver/nvidia/version", "NVRM version")
    assert "not on PATH" in only(d06.check(fake.machine()), "error").found


def test_a_driver_that_does_not_know_a_field(fake: FakeMachine) -> None:
    gpus(fake, H100.format(0), capability="echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2")
    only(d06.check(fake.machine()), "ok")


def test_a_driver_that_is_too_old_for_torch(fake: FakeMachine) -> None:
    fake.torch("2.13.0+cu130", cuda="13.0")
    gpus(fake, H100.format(0))
    assert "CUDA 13" in only(d06.check(fake.machine()), "error").reason
    gpus(fake, H100.format(0), cuda="13.0")
    assert statuses(d06.check(fake.machine())) == ["ok"]


@pytest.mark.parametrize(
    ("visible", "status"), [("", "warning"), ("-1", "warning"), ("0", "ok"), ("0,4", "error"), ("GPU-aa,MIG-bb", "ok")]
)
def test_visible_devices(fake: FakeMachine, visible: str, status: str) -> None:
    gpus(fake, H100.format(0), H100.format(1))
    fake.environ["CUDA_VISIBLE_DEVICES"] = visible
    assert statuses(d06.check(fake.machine())) == [status]


# ---- D7


def test_a_plain_machine_can_be_reached(fake: FakeMachine) -> None:
    assert only(d07.check(fake.machine()), "ok").found == "interfaces docker0, eth0, lo, `node1` is 10.0.0.1"


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("eth0", "ok"), ("eth", "ok"), ("=eth0", "ok"), ("^docker,lo", "ok"), ("^=eth1", "ok"), ("ib,eth", "ok"),
        ("eth0:5000", "ok"), ("=eth", "error"), ("ib0", "error"), ("^docker,lo,eth", "error"), ("^", "ok"),
    ],
)  # fmt: skip
def test_nccl_reads_prefixes_exact_names_and_exclusions(fake: FakeMachine, value: str, status: str) -> None:
    fake.environ["NCCL_SOCKET_IFNAME"] = value
    outcome = only(d07.check(fake.machine()), status)
    assert outcome.repair == ("unset NCCL_SOCKET_IFNAME" if status == "error" else "")


@pytest.mark.parametrize(
    ("value", "status"), [("eth0", "ok"), ("eth", "error"), ("^lo", "error"), ("eth0,ib0", "error")]
)
def test_gloo_reads_exact_names(fake: FakeMachine, value: str, status: str) -> None:
    fake.environ["GLOO_SOCKET_IFNAME"] = value
    only(d07.check(fake.machine()), status)


def test_loopback_is_enough_for_one_machine_only(fake: FakeMachine) -> None:
    fake.environ["GLOO_SOCKET_IFNAME"] = "lo"
    fake.names["node1"] = ("127.0.1.1",)
    only(d07.check(fake.machine()), "ok")
    outcomes = d07.check(fake.machine(hosts=["node2"]))
    assert statuses(outcomes) == ["error", "error"]
    assert "resolves to 127.0.1.1" in outcomes[1].found
    fake.environ["SLURM_JOB_NUM_NODES"] = "2"
    assert statuses(d07.check(fake.machine())) == ["error", "error"]
    fake.environ["SLURM_JOB_NUM_NODES"] = "1"
    only(d07.check(fake.machine()), "ok")


def test_names_that_do_not_resolve(fake: FakeMachine) -> None:
    fake.environ["MASTER_ADDR"] = "node9"
    assert "MASTER_ADDR=node9" in only(d07.check(fake.machine()), "error").found
    del fake.environ["MASTER_ADDR"]
    del fake.names["node1"]
    assert "does not resolve" in only(d07.check(fake.machine()), "warning").found


# ---- D8 and D12

SSH = """\
for last; do :; done
case "$*" in
  *node2*) echo {clock}; echo python; exit 0 ;;
  *node3*) echo "node3: Permission denied (publickey)." >&2; exit 255 ;;
  *node4*) echo {clock}; exit 1 ;;
  *) echo "ssh: connect to host: Connection timed out" >&2; exit 255 ;;
esac
"""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a slots=8\n# comment\n\nb slots=4 extra\n", []),
        ("a slots=8\na slots=4\n", ["line 2 names `a` again"]),
        ("a\n", ["line 1 is not `HOST slots=N`: a"]),
        ("a slots = 8\n", ["line 1 is not `HOST slots=N`: a slots = 8"]),
        ("\n# nothing\n", ["it names no host"]),
    ],
)
def test_a_hostfile_is_read_as_the_launcher_reads_it(text: str, wrong: list[str]) -> None:
    runner = pytest.importorskip("deepspeed.launcher.runner")
    assert list(read_hostfile(text).wrong) == wrong
    try:
        pool = runner._parse_hostfile(text.splitlines(keepends=True))
    except ValueError:
        assert wrong
    else:
        assert not wrong
        assert dict(pool) == {entry.host: entry.slots for entry in read_hostfile(text).entries}


def test_no_other_host_is_asked_unless_it_is_named(fake: FakeMachine) -> None:
    fake.program("ssh", "echo called > $TMPDIR/called")
    (fake.system / "job").mkdir()
    (fake.system / "job/hostfile").write_text("node2 slots=8\n")
    fake.environ["MASTER_ADDR"] = "node2"
    assert statuses([*d08.check(fake.machine()), *d12.check(fake.machine())]) == ["ok", "ok"]
    assert not (fake.folder / "called").exists()


def test_hosts_that_answer(fake: FakeMachine) -> None:
    fake.program("ssh", SSH.format(clock=NOW))
    machine = fake.machine(hosts=["node2"])
    assert "1 host reached" in only(d08.check(machine), "ok").found
    only(d12.check(machine), "ok")


def test_hosts_that_do_not(fake: FakeMachine) -> None:
    fake.program("ssh", SSH.format(clock=NOW + 90))
    hostfile = fake.folder / "hosts"
    hostfile.write_text("node2 slots=8\nnode3 slots=8\nnode4 slots=8\n-oProxyCommand=x slots=1\nnode2 slots=1\n")
    machine = fake.machine(hostfile=hostfile, hosts=["node5"])
    outcomes = {outcome.found: outcome for outcome in d08.check(machine)}
    assert outcomes["node3 does not answer ssh"].repair == "ssh-copy-id node3"
    assert "timed out" in outcomes["node5 does not answer ssh"].reason
    assert any(found.startswith("node4 has no ") for found in outcomes)
    assert any("line 5 names `node2` again" in found for found in outcomes)
    assert any("leading dash" in found for found in outcomes)
    assert not any(found.startswith("-o") for found in outcomes)
    clocks = d12.check(machine)
    assert statuses(clocks) == ["unknown", "warning", "unknown", "warning"]
    assert clocks[1].found == "node2 is 90.0 s ahead of this machine"


def test_a_clock_that_is_behind(fake: FakeMachine) -> None:
    fake.program("ssh", SSH.format(clock=NOW - 10))
    assert "10.0 s behind" in only(d12.check(fake.machine(hosts=["node2"])), "warning").found


def test_without_ssh_nothing_is_known(fake: FakeMachine) -> None:
    only(d08.check(fake.machine(hosts=["node2"])), "unknown")


def test_a_hostfile_that_is_not_there(fake: FakeMachine) -> None:
    assert "cannot be read" in only(d08.check(fake.machine(hostfile=Path("/no/file"))), "error").found


def test_lines_of_the_environment_file(fake: FakeMachine) -> None:
    (fake.home / ".deepspeed_env").write_text("NCCL_DEBUG=INFO\nexport\n")
    outcome = only(d08.check(fake.machine()), "warning")
    assert "line 2" in outcome.found
    (fake.home / ".deepspeed_env").write_text("NCCL_DEBUG=INFO\n")
    only(d08.check(fake.machine()), "ok")


def test_pdsh_is_missed_where_the_launcher_needs_it(fake: FakeMachine) -> None:
    fake.program("ssh", SSH.format(clock=NOW))
    fake.package("deepspeed", "0.19.8")
    assert "pdsh" in only(d08.check(fake.machine(hosts=["node2"])), "warning").found
    fake.program("pdsh", "true")
    only(d08.check(fake.machine(hosts=["node2"])), "ok")


# ---- D9


def test_limits_that_are_wide_enough(fake: FakeMachine) -> None:
    assert "/dev/shm 100 GiB, open files 65536" in only(d09.check(fake.machine()), "ok").found


@pytest.mark.parametrize(
    ("disk", "says"),
    [
        (Disk(64 << 20, 64 << 20, None), "/dev/shm has 64 MiB"),
        (Disk(16 * GIB, 1 << 20, None), "/dev/shm has 1 MiB free of 16 GiB"),
    ],
)
def test_shared_memory(fake: FakeMachine, disk: Disk, says: str) -> None:
    fake.disks[str(fake.system / "dev/shm")] = disk
    assert only(d09.check(fake.machine()), "warning").found == says


@pytest.mark.parametrize(
    ("disk", "status", "says"),
    [
        (Disk(100 * GIB, GIB // 2, 1000000), "warning", "512 MiB free"),
        (Disk(100 * GIB, 0, 1000000), "error", "0 B free"),
        (Disk(100 * GIB, 50 * GIB, 0), "error", "0 free inodes"),
    ],
)
def test_disk_space(fake: FakeMachine, disk: Disk, status: str, says: str) -> None:
    fake.disks[str(fake.folder)] = disk
    outcome = only(d09.check(fake.machine()), status)
    assert f"temporary folder {fake.folder}: {says}" in outcome.found


def test_open_files_and_locked_memory(fake: FakeMachine) -> None:
    fake.proc(
        "self/limits", "Max open files            256    65536    files\nMax locked memory         65536 65536 bytes\n"
    )
    assert statuses(d09.check(fake.machine())) == ["warning"]
    (fake.system / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    assert [o.repair for o in d09.check(fake.machine())] == ["ulimit -n 65536", "ulimit -l unlimited"]
    fake.proc(
        "self/limits", "Max open files   unlimited unlimited files\nMax locked memory unlimited unlimited bytes\n"
    )
    assert "open files unlimited" in only(d09.check(fake.machine()), "ok").found


# ---- D10

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def socket_line(port: int, state: str = "0A", inode: int = 4711) -> str:
    idle = "00000000:00000000 00:00000000 00000000     0        0"
    return f"   0: 00000000:{port:04X} 00000000:0000 {state} {idle} {inode} 1\n"


def test_a_free_port(fake: FakeMachine) -> None:
    fake.proc("net/tcp", HEADER + socket_line(22) + socket_line(29500, "06"))
    assert only(d10.check(fake.machine()), "ok").found == "the default port (29500) is free"


@pytest.mark.parametrize("table", ["net/tcp", "net/tcp6"])
def test_a_port_in_use_and_by_whom(fake: FakeMachine, table: str) -> None:
    fake.proc(table, HEADER + socket_line(29500) + socket_line(29501))
    outcome = only(d10.check(fake.machine()), "warning")
    assert "another user's process" in outcome.reason
    assert outcome.repair == "export MASTER_PORT=29502"
    fake.process(55, "torchrun", parent=40, files=("socket:[4711]",))
    assert "process 55 (torchrun)" in d10.check(fake.machine())[0].reason


def test_a_rank_that_was_left_over(fake: FakeMachine) -> None:
    fake.proc("net/tcp", HEADER + socket_line(29500))
    fake.process(56, "python3", parent=1, files=("socket:[4711]",))
    outcome = only(d10.check(fake.machine()), "warning")
    assert "lost its launcher" in outcome.reason
    assert outcome.repair.startswith("kill 56 ")


@pytest.mark.parametrize(("port", "status"), [("29400", "ok"), ("80", "error"), ("70000", "error"), ("x", "error")])
def test_master_port(fake: FakeMachine, port: str, status: str) -> None:
    fake.environ["MASTER_PORT"] = port
    only(d10.check(fake.machine(uid=1000)), status)


def test_a_port_that_this_process_really_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        outcome = only(d10.check(Machine(Python.current(), environ={"MASTER_PORT": str(port)})), "ok")
        assert f"process {os.getpid()}" in outcome.found


def test_no_table_of_sockets(fake: FakeMachine) -> None:
    (fake.system / "proc/net/tcp").unlink()
    only(d10.check(fake.machine()), "unknown")


# ---- D11


def test_a_clean_environment(fake: FakeMachine) -> None:
    only(d11.check(fake.machine()), "ok")


def test_variables_that_were_left_over(fake: FakeMachine) -> None:
    fake.environ.update(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost")
    outcome = only(d11.check(fake.machine()), "error")
    assert "rank 0 of 2" in outcome.reason
    assert outcome.repair == "unset RANK WORLD_SIZE MASTER_ADDR"
    fake.environ["WORLD_SIZE"] = "1"
    only(d11.check(fake.machine()), "warning")


def test_a_meeting_point_for_the_next_launch_is_meant(fake: FakeMachine) -> None:
    fake.environ.update(MASTER_ADDR="node1", MASTER_PORT="29500", NODE_RANK="1")
    only(d11.check(fake.machine()), "ok")


@pytest.mark.parametrize(
    "command",
    [
        ("/env/bin/python", "/env/bin/torchrun", "x.py"),
        ("python", "-m", "torch.distributed.run", "x.py"),
        ("srun", "bash"),
    ],
)
def test_variables_below_a_launcher_are_meant(fake: FakeMachine, command: tuple[str, ...]) -> None:
    fake.environ.update(RANK="0", WORLD_SIZE="2")
    fake.process(os.getpid(), "dslint", parent=900)
    fake.process(900, "launcher", parent=1, command=command)
    assert "process 900" in only(d11.check(fake.machine()), "ok").reason


def test_a_path_that_only_mentions_a_launcher_is_none(fake: FakeMachine) -> None:
    fake.environ.update(RANK="0", WORLD_SIZE="2")
    fake.process(os.getpid(), "dslint", parent=900)
    fake.process(900, "bash", parent=1, command=("bash", "-c", "cd /home/me/deepspeed-runs/x"))
    only(d11.check(fake.machine()), "error")


def test_a_pod_sets_them_on_purpose(fake: FakeMachine) -> None:
    fake.environ.update(RANK="0", WORLD_SIZE="2", KUBERNETES_SERVICE_HOST="10.0.0.1")
    only(d11.check(fake.machine()), "ok")


# ---- D13


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PTY_PORT": "4000"}, "warning"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290", "SLURM_PTY_PORT": "4000"}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "8"}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "8"}, "ok"),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "4", "SLURM_GPUS_ON_NODE": "8"}, "warning"),
    ],
)
def test_slurm(fake: FakeMachine, variables: dict[str, str], status: str) -> None:
    fake.environ.update(variables)
    only(d13.check(fake.machine()), status)


# ---- D14

WRITTEN = """\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_config_file: {config}
  zero3_init_flag: false
distributed_type: DEEPSPEED
machine_rank: 0
num_machines: {machines}
num_processes: {processes}
rdzv_backend: static
tpu_env: []
use_cpu: {cpu}
"""


def default_config(
    fake: FakeMachine, machines: int = 1, processes: int = 2, cpu: str = "false", config: str = ""
) -> Path:
    folder = fake.home / ".cache/huggingface/accelerate"
    folder.mkdir(parents=True, exist_ok=True)
    named = config or str(fake.folder / "rows")
    path = folder / "default_config.yaml"
    path.write_text(WRITTEN.format(machines=machines, processes=processes, cpu=cpu, config=named))
    return path


def test_no_default_config(fake: FakeMachine) -> None:
    only(d14.check(fake.machine()), "ok")


def test_a_default_config_that_fits(fake: FakeMachine) -> None:
    gpus(fake, H100.format(0), H100.format(1))
    path = default_config(fake)
    assert only(d14.check(fake.machine()), "ok").found == (
        f"{path} (distributed_type: DEEPSPEED, num_machines: 1, num_processes: 2)"
    )


@pytest.mark.parametrize(
    ("values", "status", "says"),
    [
        ({"machines": 4, "processes": 8}, "warning", "num_machines: 4"),
        ({"processes": 8}, "error", "num_processes: 8 on a machine with 2 GPUs"),
        ({"cpu": "true"}, "warning", "use_cpu: true"),
        ({"config": "/no/ds.json"}, "error", "/no/ds.json does not exist"),
    ],
)
def test_a_default_config_of_another_job(fake: FakeMachine, values: dict[str, object], status: str, says: str) -> None:
    gpus(fake, H100.format(0), H100.format(1))
    path = default_config(fake, **values)  # type: ignore[arg-type]
    outcome = only(d14.check(fake.machine()), status)
    assert says in outcome.found
    assert outcome.repair == f"mv {path} {path}.old"


def test_fewer_ranks_than_gpus_or_several_machines_can_be_meant(fake: FakeMachine) -> None:
    gpus(fake, H100.format(0), H100.format(1))
    default_config(fake, processes=1)
    only(d14.check(fake.machine()), "ok")
    default_config(fake, machines=2, processes=4)
    only(d14.check(fake.machine()), "warning")
    only(d14.check(fake.machine(hosts=["node2"])), "ok")


def test_without_gpus_the_number_of_processes_says_nothing(fake: FakeMachine) -> None:
    (fake.folder / "rows").touch()
    default_config(fake, processes=8)
    only(d14.check(fake.machine()), "ok")


def test_hf_home_moves_it_and_json_is_read(fake: FakeMachine) -> None:
    fake.environ["HF_HOME"] = str(fake.folder / "hf")
    folder = fake.folder / "hf/accelerate"
    folder.mkdir(parents=True)
    (folder / "default_config.json").write_text('{"num_machines": 3, "machine_rank": 1}')
    assert "rank 1" in only(d14.check(fake.machine()), "warning").reason


@pytest.mark.parametrize(("name", "text"), [("yaml", "not a config\n"), ("json", "[1]"), ("json", "{")])
def test_a_default_config_that_is_none(fake: FakeMachine, name: str, text: str) -> None:
    folder = fake.home / ".cache/huggingface/accelerate"
    folder.mkdir(parents=True)
    (folder / f"default_config.{name}").write_text(text)
    assert "is no config" in only(d14.check(fake.machine()), "error").found
