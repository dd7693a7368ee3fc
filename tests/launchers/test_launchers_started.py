"""What real launchers start, against the plan: how many processes, where they meet, which devices and words they get.

torchrun, deepspeed (on this node, with its accelerator for CPUs), accelerate launch and python start a script that
writes down its environment and its arguments and imports nothing. They run in forks of one process that has imported
them; four command lines are started as a shell would, which shows that the forks do the same.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch_helpers import plan_of

from dslint.model.launch.launchers.environment import SETS, sets
from dslint.model.launch.meeting import devices, meeting

pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytest.importorskip("accelerate")

SCRIPT = """\
#!{python}
import json, os, sys
with open(f"seen-{{os.getpid()}}.json", "w") as file:
    json.dump({{"argv": sys.argv, "env": dict(os.environ)}}, file)
"""
_LOCAL = "compute_environment: LOCAL_MACHINE\n"
FILES = {
    "multi.yaml": _LOCAL + "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n",
    "alone.yaml": _LOCAL + "distributed_type: 'NO'\nnum_machines: 1\nnum_processes: 2\n",
}
LAUNCH = "python -m torch.distributed.launch"
LINES = (
    "torchrun t.py --x",
    "torchrun --nproc_per_node 2 t.py",
    "torchrun --nproc-per-node=3 --master_port PORT t.py 'a b' ''",
    "torchrun --nproc-per 2 --standalone t.py",
    "PET_NPROC_PER_NODE=2 torchrun t.py",
    "PET_NPROC_PER_NODE=3 torchrun --nproc_per_node 2 t.py",
    "CUDA_VISIBLE_DEVICES=1,3 A=1 torchrun --nproc_per_node 2 t.py",
    "torchrun --nproc_per_node 2 -m pkg.train --x 1",
    "torchrun --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 t.py",
    "torchrun --nproc_per_node 2 -- t.py --y",
    "torchrun --nproc_per_node 2 t.py -- --y",
    "torchrun --no_python --nproc_per_node 2 ./t.py --y",
    "torchrun --nnodes 1:1 --nproc_per_node=2 --master_addr 127.0.0.1 --master_port PORT t.py",
    f"{LAUNCH} --nproc_per_node=2 t.py --x",
    f"{LAUNCH} --nproc_per_node=2 --use_env t.py",
    "python -m torch.distributed.run --nproc_per_node=2 t.py",
    "deepspeed --num_gpus 2 t.py --x",
    "CUDA_VISIBLE_DEVICES=1,3 deepspeed t.py",
    "CUDA_VISIBLE_DEVICES=1,3 deepspeed --num_gpus 1 t.py",
    "deepspeed --include localhost:1,2 --no_local_rank t.py",
    "deepspeed -ilocalhost:0 --master_p=PORT t.py -- -- --y",
    "deepspeed --num_gpus=2 --module pkg.train --y",
    "accelerate launch --multi_gpu --num_processes 2 --main_process_port PORT t.py",
    "accelerate launch --cpu --num_processes 4 t.py",
    "accelerate launch --config_file multi.yaml --main_process_port PORT t.py",
    "accelerate launch --config_file multi.yaml --num-processes 3 --main_process_port PORT -m pkg.train",
    "accelerate launch --config_file alone.yaml t.py",
    "accelerate launch --multi_gpu --gpu_ids 0,2 --num_processes=2 --main_process_port PORT t.py",
    "A=1 python t.py --x",
)
# Started as a shell starts them.
SHELL = (LINES[1], LINES[13], LINES[17], LINES[22])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_environment(folder: Path) -> dict[str, str]:
    """This process's, without what its own launch has set; four devices for the accelerator of DeepSpeed."""
    own = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    names = {name for table in SETS.values() for name in table}
    kept = {name: value for name, value in os.environ.items() if name not in names and not name.startswith("PET_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    kept.update(PYTHONPATH=own, PATH=path, HOME=str(folder), HF_HOME=str(folder), DS_ACCELERATOR="cpu", LOCAL_SIZE="4")
    return kept


def prepared(folder: Path) -> Path:
    """A folder with the script, also as a module, and the files that command lines name."""
    (folder / "pkg").mkdir(parents=True)
    for path in (folder / "t.py", folder / "pkg" / "train.py"):
        path.write_text(SCRIPT.format(python=sys.executable))
        path.chmod(0o755)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def notes(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder.glob("seen-*.json")]
    return sorted(found, key=lambda note: int(note["env"].get("RANK", "0")))


def request(text: str, folder: Path) -> list[Any]:
    """What ``started.py`` is asked to start."""
    words = shlex.split(text)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    launcher = words.pop(0)
    if launcher == "python" and words[:1] == ["-m"]:
        launcher = {"torch.distributed.launch": "launch", "torch.distributed.run": "torchrun"}[words[1]]
        words = words[2:]
    elif launcher == "accelerate":
        words = words[1:]
    return [launcher, words, environment, str(folder)]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path, int]]:
    """Each line: with its port, the folder in which it ran, its exit code."""
    top = tmp_path_factory.mktemp("started")
    texts = [line.replace("PORT", str(free_port())) for line in LINES]
    folders = [prepared(top / str(number)) for number in range(len(LINES))]
    asked = json.dumps([request(text, folder) for text, folder in zip(texts, folders, strict=True)])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("started.py"))],
        input=asked, capture_output=True, text=True, cwd=top, env=own_environment(top), timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    return {line: found for line, *found in zip(LINES, texts, folders, codes, strict=True)}  # type: ignore[misc]


def compare(text: str, seen: list[dict[str, Any]]) -> None:
    """The plan says what the processes have written down."""
    plan = plan_of(text, FILES)
    command = plan.command
    count = len(seen)
    assert plan.world_size.get_or(1) == plan.processes_per_node.get_or(count) == count
    assert plan.nodes.get_or(1) == 1
    if command.launcher != "python":
        assert plan.world_size.is_known
    ranks = [note["env"].get("RANK") for note in seen]
    assert ranks == [str(rank) for rank in range(count)] or ranks == [None]
    assert [w.text for w in command.script_args] == arguments_of(seen[0])
    assert command.script is not None
    assert command.script.text in (seen[0]["argv"][0], "pkg.train")
    assert command.is_module == (command.script.text == "pkg.train")
    assert own_rank(command.launcher, command.program, text) == bool(set(seen[0]["argv"]) & _PASSED)
    meets, shown = meeting(command), devices(command)
    for note in seen:
        env = note["env"]
        for fact, name in ((meets.address, "MASTER_ADDR"), (meets.port, "MASTER_PORT")):
            if fact.is_known and env.get(name) is not None and fact.get() not in ("localhost", "0"):
                assert env[name] == fact.get(), name
        assert env.get("CUDA_VISIBLE_DEVICES", "") == ",".join(shown.get_or(()))
        for name, fact in command.env.items():
            if fact.is_known and not sets(command, name) and name != "CUDA_VISIBLE_DEVICES":
                assert env[name] == fact.get(), name
        if ranks != [None]:
            assert env["WORLD_SIZE"] == str(count)
            missing = {name for name in SETS[command.launcher] if name not in env}
            assert not missing or (missing == {"OMP_NUM_THREADS"} and count == 1)


_PASSED = {"--local_rank=0", "--local-rank=0"}


def own_rank(launcher: str, program: str, text: str) -> bool:
    """Whether the processes get their local rank as an argument."""
    if launcher == "deepspeed":
        return "--no_local_rank" not in text
    return program.endswith("torch.distributed.launch") and "--use_env" not in text


def arguments_of(note: dict[str, Any]) -> list[str]:
    return [word for word in note["argv"][1:] if word not in _PASSED]


@pytest.mark.parametrize("line", LINES)
def test_the_plan_says_what_starts(line: str, started: dict[str, tuple[str, Path, int]]) -> None:
    text, folder, code = started[line]
    assert code == 0, (folder / "launcher.err").read_text()
    compare(text, notes(folder))


def test_a_shell_starts_the_same(tmp_path: Path) -> None:
    running = []
    for number, line in enumerate(SHELL):
        text = line.replace("PORT", str(free_port()))
        folder = prepared(tmp_path / str(number))
        process = subprocess.Popen(
            ["sh", "-c", text], cwd=folder, env=own_environment(folder), stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        running.append((text, folder, process))
    for text, folder, process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        compare(text, notes(folder))
