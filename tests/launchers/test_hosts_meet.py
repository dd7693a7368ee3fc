"""Plans of several nodes against launchers on simulated hosts: network namespaces, each with an address of its own.

torchrun and accelerate launch run on every host, deepspeed on the first; it reaches the others with a ``pdsh`` that
starts its command in their namespaces, and an ``ssh`` that names the first host's address.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import Host, hosts, why_not
from test_launchers_started import notes, own_environment, prepared, request

from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.launch.meeting import meeting
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace

pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytest.importorskip("accelerate")

_REASON = why_not()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON)

FIRST = "10.77.0.1"
HOSTFILE = "# two nodes\nhost0 slots=3\nhost1 slots=2\n"
CONFIG = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 4\n"
    f"main_process_ip: {FIRST}\nmain_process_port: 29503\nsame_network: true\n"
)
FILES = {"hosts": HOSTFILE, "c.yaml": CONFIG}
# A job is one line for each host; NUMBER stands for its number.
JOBS = {
    "static": (
        2,
        f"torchrun --nnodes 2 --node_rank NUMBER --master_addr {FIRST} --master_port 29501 --nproc_per_node 2 t.py",
    ),
    "variables": (
        2,
        f"PET_NODE_RANK=NUMBER PET_NNODES=2 torchrun --master-addr={FIRST} --master-port=29502 --nproc-per-node=1 t.py",
    ),
    "c10d": (
        3,
        f"torchrun --nnodes=3 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint={FIRST}:29400 --rdzv_id=j t.py",
    ),
    "accelerate": (2, "accelerate launch --config_file c.yaml --machine_rank NUMBER t.py"),
}
PDSH = """\
#!{python}
import subprocess, sys
hosts = sys.argv[sys.argv.index("-w") + 1]
command = " ".join(sys.argv[sys.argv.index("-w") + 2 :])
running = []
for number, host in enumerate(hosts.split(",")):
    inside = command.replace("%n", str(number)).replace("%h", host)
    space = {spaces}[host]
    running.append(subprocess.Popen(["ip", "netns", "exec", space, "sh", "-c", inside]))
sys.exit(max(process.wait() for process in running))
"""


@dataclass
class Node:
    """What one host did: its line, and what its processes wrote down."""

    line: str
    code: int
    said: str
    seen: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    with hosts(3, tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture(scope="module")
def jobs(machines: list[Host], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Node]]:
    top = tmp_path_factory.mktemp("jobs")
    asked: list[list[Any]] = []
    places: list[tuple[str, str, Path]] = []
    for name, (count, line) in JOBS.items():
        for host in machines[:count]:
            text = line.replace("NUMBER", str(host.number))
            folder = prepared(top / f"{name}{host.number}")
            (folder / "c.yaml").write_text(CONFIG)
            asked.append([*request(text, folder), host.namespace, host.address])
            places.append((name, text, folder))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("started.py"))],
        input=json.dumps(asked), capture_output=True, text=True, cwd=top, env=own_environment(top), timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Node]] = {}
    for (name, text, folder), code in zip(places, json.loads(done.stdout), strict=True):
        said = (folder / "launcher.err").read_text()
        found.setdefault(name, []).append(Node(text, code, said, notes(folder)))
    return found


def plan_of(text: str) -> RunPlan:
    workspace = Workspace(Path("/nonexistent"), {"run.sh": text, "t.py": "print()\n", **FILES})
    docs = read_launch_docs(SourceFile("run.sh", text), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan


@pytest.mark.parametrize("name", JOBS)
def test_the_nodes_of_a_plan_meet(name: str, jobs: dict[str, list[Node]]) -> None:
    nodes = jobs[name]
    for number, node in enumerate(nodes):
        assert node.code == 0, node.said
        plan = plan_of(node.line)
        assert plan.nodes.get() == len(nodes)
        assert plan.processes_per_node.get() == len(node.seen)
        assert {note["env"]["WORLD_SIZE"] for note in node.seen} == {str(plan.world_size.get())}
        meets = meeting(plan.command)
        addresses = {note["env"]["MASTER_ADDR"] for note in node.seen}
        if not plan.command.launcher_flag("--rdzv_endpoint"):
            assert addresses == {meets.address.get_or(FIRST)}
            assert {note["env"]["GROUP_RANK"] for note in node.seen} == {meets.node_rank.get()} == {str(number)}
    ranks = sorted(int(note["env"]["RANK"]) for node in nodes for note in node.seen)
    assert ranks == list(range(plan_of(nodes[0].line).world_size.get()))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {"host0": "0,1,2", "host1": "0,1"}),
        ("--include host0:1@host1", {"host0": "1", "host1": "0,1"}),
    ],
)
def test_deepspeed_starts_what_the_hostfile_says(
    flags: str, expected: dict[str, str], machines: list[Host], tmp_path: Path
) -> None:
    text = f"deepspeed -H hosts --master_port 29505 {flags} t.py --x"
    folder = prepared(tmp_path / "run")
    (folder / "hosts").write_text(HOSTFILE)
    programs = tmp_path / "programs"
    programs.mkdir()
    spaces = {f"host{host.number}": host.namespace for host in machines}
    for program, does in (
        ("pdsh", PDSH.format(python=sys.executable, spaces=spaces)),
        ("ssh", f"#!/bin/sh\necho {FIRST}\n"),
    ):
        (programs / program).write_text(does)
        (programs / program).chmod(0o755)
    environment = own_environment(tmp_path)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    done = subprocess.run(
        shlex.split(text), cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = notes(folder)
    plan = plan_of(text)
    assert plan.nodes.get() == len(expected)
    assert plan.world_size.get() == len(seen) == int(seen[0]["env"]["WORLD_SIZE"])
    assert [note["env"]["RANK"] for note in seen] == [str(rank) for rank in range(len(seen))]
    assert {note["env"]["CUDA_VISIBLE_DEVICES"] for note in seen} == set(expected.values())
    assert {note["env"]["MASTER_PORT"] for note in seen} == {meeting(plan.command).port.get()}
