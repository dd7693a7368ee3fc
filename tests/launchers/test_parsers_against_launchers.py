"""Launch commands as dslint reads them, and as the parsers of the launchers themselves do.

Random command lines of the options that the installed torchrun, deepspeed and accelerate have run through the ``main``
of each launcher in one process, up to the start of processes. Whatever dslint says it knows must be what the launcher
would do; how much it knows is counted.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_lines import FILES, Line, random_lines
from launch_helpers import plan_of

from dslint.core.fact import Fact
from dslint.model.launch.launchers.releases import accepts
from dslint.model.launch.meeting import devices, meeting
from dslint.model.plan.runplan import RunPlan

pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytest.importorskip("accelerate")

COUNT = 480
DEVICES = 8
NAMES = {"launch": "python -m torch.distributed.launch", "accelerate": "accelerate launch"}


def shell(line: Line) -> str:
    """The line as it stands in a script."""
    prefix = [f"{name}={shlex.quote(value)}" for name, value in line.environment.items()]
    return " ".join([*prefix, NAMES.get(line.launcher, line.launcher), *map(shlex.quote, line.words)])


class Launchers:
    """The launchers, in a process of their own."""

    def __init__(self, folder: Path) -> None:
        for name, text in FILES.items():
            (folder / name).write_text(text)
        own = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
        # A home of its own: accelerate looks for a default config there, deepspeed for variables.
        environment = {
            **os.environ,
            "PYTHONPATH": own,
            "DS_ACCELERATOR": "cpu",
            "HOME": str(folder),
            "HF_HOME": str(folder),
        }
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment,
        )  # fmt: skip

    def ask(self, line: Line) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([line.launcher, line.words, line.environment, DEVICES]) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launchers]:
    found = Launchers(tmp_path_factory.mktemp("launchers"))
    yield found
    found.end()


def differences(line: Line, plan: RunPlan, real: dict[str, Any], known: Counter[str]) -> Iterator[str]:
    """What dslint says otherwise; counts what it says at all."""
    command = plan.command
    meets = meeting(command)
    pairs: list[tuple[str, Fact[Any], Any]] = [
        ("nodes", plan.nodes, real.get("nodes")),
        ("processes per node", plan.processes_per_node, real.get("per_node")),
        ("world size", plan.world_size, real.get("world")),
    ]
    if real["starts"] == "torchrun" and command.launcher == "torchrun":
        host, _, port = real["endpoint"].rpartition(":")
        if real["backend"] == "static" and not any("rdzv_e" in word.replace("-", "_") for word in line.words):
            pairs += [("address", meets.address, host), ("port", meets.port, port)]
            pairs.append(("node rank", meets.node_rank, str(real["node_rank"])))
        # A single node meets at a free port whatever backend is stated.
        if real["endpoint"] != "localhost:0" or meets.is_standalone:
            pairs.append(("backend", meets.backend, real["backend"]))
    if real["starts"] == "deepspeed" and command.launcher == "deepspeed":
        shown = tuple(real["environment"]["CUDA_VISIBLE_DEVICES"].split(","))
        pairs.append(("devices", devices(command), shown))
    for name, fact, truth in pairs:
        if truth is not None:
            known[f"{name}: {fact.state}"] += 1
        if fact.is_known and truth is not None and fact.get() != truth:
            yield f"{name}: {fact.get()!r}, not {truth!r}"
    script, arguments = script_of(real)
    if script is not None:
        mine = [command.script.text if command.script else None, *(w.text for w in command.script_args)]
        if mine != [script, *arguments]:
            yield f"words: {mine}, not {[script, *arguments]}"


def script_of(real: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The script or module of the command of a process, and its arguments."""
    words = list(real["command"])
    if real["starts"] == "hosts" or words[:1] == ["deepspeed"]:
        return None, []  # inside the words for another program
    if words[:2] == ["numactl", "-C"]:
        words = words[3:]
    if words and ("python" in words[0] or words[0] == ""):
        words = words[1:]
        while words and words[0] in ("-u", "-m"):
            words = words[1:]
    given = [w for w in words[1:] if not w.startswith(("--local_rank=", "--local-rank="))]
    return (words[0], given) if words else (None, [])


@pytest.fixture(scope="module")
def outcome(launchers: Launchers) -> tuple[list[str], Counter[str], list[tuple[Line, str]]]:
    """Differences, counts, and the lines that a launcher refuses, with its words."""
    wrong: list[str] = []
    known: Counter[str] = Counter()
    refused: list[tuple[Line, str]] = []
    for line in random_lines(COUNT, seed=7):
        real = launchers.ask(line)
        if "error" in real:
            refused.append((line, real["error"]))
            continue
        known[f"lines of {line.launcher}"] += 1
        text = shell(line)
        wrong += [f"{text}\n    {said}" for said in differences(line, plan_of(text, FILES), real, known)]
    return wrong, known, refused


def test_what_is_known_is_what_the_launcher_does(
    outcome: tuple[list[str], Counter[str], list[tuple[Line, str]]],
) -> None:
    wrong, _, _ = outcome
    assert wrong == []


def test_most_is_known(outcome: tuple[list[str], Counter[str], list[tuple[Line, str]]]) -> None:
    _, known, _ = outcome
    lines = [known[f"lines of {launcher}"] for launcher in ("torchrun", "deepspeed", "accelerate", "launch")]
    assert min(lines) >= 30, known
    for fact in ("nodes", "processes per node", "world size"):
        said, all_ = known[f"{fact}: known"], sum(known[f"{fact}: {s}"] for s in ("known", "absent", "unknown"))
        assert said >= all_ / 2, known


def test_options_are_refused_as_the_table_says(outcome: tuple[list[str], Counter[str], list[tuple[Line, str]]]) -> None:
    _, _, refused = outcome
    assert refused
    for line, error in refused:
        if "unrecognized arguments" in error or "ambiguous option" in error:
            launcher, program = ("torchrun", NAMES["launch"]) if line.launcher == "launch" else (line.launcher, "")
            said = {accepts(launcher, w.partition("=")[0], program=program) for w in line.words if w.startswith("--")}
            assert said & {"no", "maybe"}, (line, error)
