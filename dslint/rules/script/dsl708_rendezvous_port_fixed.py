"""The script itself fixes the port at which its ranks meet, and nobody can give another one.

**What.** `os.environ["MASTER_PORT"] = "12355"`, or `init_method="tcp://localhost:23456"`: a number in the code, with
no option and no variable that would replace it.

**Why it hurts.** One process holds the port. The second run on the same machine stops with `EADDRINUSE`, and so does
the next one after a crash that has left a rank running; two jobs that come at the same time may even join one store.
Slurm puts two jobs on one node without asking anybody. A note where no other process is started.

**Fix.** `os.environ.setdefault("MASTER_PORT", "12355")`, an option, or a free port that the parent chooses for all its
ranks. Under Slurm a port made of the job id.

**When it stays quiet.** A test of the variable or of the port comes before it; the number comes from an option, the
environment or a search for a free port; scripts that make no process group; tests; what a launcher gives is written
over (DSL250).

**Evidence.** torch 2.13, run: a second `init_process_group` at the port of a living one raises `DistNetworkError: ...
EADDRINUSE`. That two jobs may join one store was not tried. DSL310 says the same of launch files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.python.queries.asked import in_words
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.visible import variable_of
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL708",
    name="rendezvous-port-fixed",
    kind="script",
    severity=Severity.WARNING,
    summary="the script fixes the port of the rendezvous, and a second job on the machine fails",
    markers=(r"MASTER_PORT|tcp://", r"init_process_group|init_distributed|init_rpc|spawn|launch|Process\("),
    references=("https://github.com/pytorch/pytorch/issues/73320",),
    depends_on_run=True,
    also_told_by=("DSL250", "DSL272"),
    no_experiment="two programs that listen at one port need no ranks to be seen",
)
_MEETS = ("starts-group", "makes-engine", "spawns", "trainer", "prepares")
_ADDRESS = re.compile(r"tcp://[^\s/]*:(\d{4,5})$")
_TEMPLATE = re.compile(r"tcp://(?:\{[^{}]*\}|%s):(\d{4,5})$")
_ASKED = re.compile(r"MASTER_PORT|port", re.IGNORECASE)
_DECLARES = re.compile(r"add_argument|option|field|Field|Argument")
_NAMED = re.compile(r"(?i)init_?method|url")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each port in the code at which ranks meet."""
    if run.is_test or not run.has(*_MEETS):
        return
    for found in run.happenings("sets-environment"):
        port = _written(found)
        if port and _is_literal(run, port):
            yield _finding(run, found.event.module, found.event.node, port)
    for found in run.happenings("starts-group"):
        port = _given(found.event)
        if port and not _is_asked(found) and _is_literal(run, port):
            yield _finding(run, found.event.module, found.event.nodes.get("init_method", found.event.node), port)
    for module in run.machine.program.modules():
        if "tcp://" in module.code and module.search(re.compile("init_method|init_process_group")):
            for node, port in _templates(module):
                yield _finding(run, module, node, port)


def _written(found: Happening) -> str:
    """Return the port that a line writes into the environment in any case."""
    event = found.event
    if variable_of(event) != "MASTER_PORT" or _is_asked(found):
        return ""
    known = event.arguments["value"].constants
    text = str(known[0]) if known is not None and len(known) == 1 else ""
    return text if text.isdigit() and int(text) else ""


def _is_literal(run: RunQuery, port: str) -> bool:
    """Return whether the code has the number, and not as the default of an option or by the command line."""
    number = re.compile(rf"(?<!\d){port}(?!\d)")
    for module in run.machine.program.modules():
        for node in module.nodes_of(ast.Constant) if port in module.code else ():
            if number.search(str(node.value)) and not _declares(module, node):
                return True
    return False


def _declares(module: Module, node: ast.Constant) -> bool:
    """Return whether a constant is handed to what declares an option."""
    parent = module.parents.get(node)
    call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return isinstance(call, ast.Call) and _DECLARES.search(ast.unparse(call.func)) is not None


def _given(event: Event) -> str:
    known = event.arguments["init_method"].constants if "init_method" in event.arguments else None
    match = _ADDRESS.match(known[0]) if known is not None and len(known) == 1 and isinstance(known[0], str) else None
    return match[1] if match is not None else ""


def _is_asked(found: Happening) -> bool:
    """Return whether a test before it asks for the port, or whether it is free."""
    return any(isinstance(node, Alt) and _ASKED.search(in_words(node)) for node in found.around)


def _templates(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the addresses that are made of a host that is known late and a port in the code."""
    for node in module.nodes_of(ast.Constant, ast.JoinedStr):
        if isinstance(node, ast.JoinedStr):
            parts = ["{}" if isinstance(part, ast.FormattedValue) else str(part.value) for part in node.values
                     if isinstance(part, ast.FormattedValue | ast.Constant)]  # fmt: skip
            text = "".join(parts)
        else:
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        match = _TEMPLATE.match(text)
        statement = module.statement(node)
        is_given = isinstance(statement, ast.Assign | ast.Expr | ast.Return)
        if match is not None and is_given and _NAMED.search(module.text(statement)):
            yield node, match[1]


def _finding(run: RunQuery, module: Module, node: ast.AST, port: str) -> Finding:
    function = module.function(node) or module.tree
    text = module.text(function) if function is not module.tree else module.code
    is_job = run.has("spawns") or bool(re.search(r"SLURM|scontrol", text))
    return run.finding(
        META,
        module,
        node,
        f"the port {port} is fixed here, and nothing can replace it: a second job on the machine fails (`EADDRINUSE`)",
        hint='Leave a way to change it: `os.environ.setdefault("MASTER_PORT", ...)`, an option, or a free port',
        severity=None if is_job else Severity.INFO,
    )


_SPAWN = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, size):
    os.environ["MASTER_ADDR"] = "localhost"
    %s
    dist.init_process_group("nccl", rank=rank, world_size=size)
    torch.cuda.set_device(rank)


def work(rank, size):
    setup(rank, size)
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(8,), nprocs=8)
"""
_SLURM = """\
import os
import subprocess

import torch
import torch.distributed as dist


def setup():
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    nodes = os.environ["SLURM_NODELIST"]
    host = subprocess.getoutput(f"scontrol show hostname {nodes} | head -n1")
    torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
    %s
    dist.init_process_group("nccl", init_method=url, rank=rank, world_size=size)


setup()
dist.barrier()
dist.destroy_process_group()
"""
_DEFAULT = """\
import os

import torch.distributed as dist
import torch.multiprocessing as mp


class Setup:
    def __init__(self, port=40112):
        self.port = port

    def join(self, rank, size):
        os.environ["MASTER_PORT"] = str(self.port)
        dist.init_process_group("gloo", rank=rank, world_size=size)


def work(rank):
    Setup().join(rank, 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, nprocs=4)
"""
_OPTION = """\
import argparse

import torch.distributed as dist
import torch.multiprocessing as mp

parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456")
args = parser.parse_args()


def work(rank, url):
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(args.dist_url,), nprocs=4)
"""
_ALONE = """\
import os

import torch.distributed as dist

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    os.environ["MASTER_PORT"] = "29511"
    dist.init_process_group("gloo", rank=0, world_size=1)
dist.destroy_process_group()
"""

EXAMPLES = (
    bad("in each process", {"train.py": _SPAWN % 'os.environ["MASTER_PORT"] = "12355"'}, at="train.py:10 warning"),
    bad(
        "an address",
        {"train.py": (_SPAWN % "print(rank)").replace('"nccl",', '"nccl", init_method="tcp://127.0.0.1:23456",')},
        at="train.py:11 warning",
    ),
    bad("on the first node of a job", {"train.py": _SLURM % 'url = f"tcp://{host}:23456"'}, at="train.py:13 warning"),
    bad("a default that nobody replaces", {"train.py": _DEFAULT}, at="train.py:12 warning"),
    bad("one process by itself", {"train.py": _ALONE}, at="train.py:8 info"),
    good("a default", {"train.py": _SPAWN % 'os.environ.setdefault("MASTER_PORT", "12355")'}),
    good(
        "only where there is none",
        {"train.py": _SPAWN % 'if "MASTER_PORT" not in os.environ:\n        os.environ["MASTER_PORT"] = "12355"'},
    ),
    good("by the environment", {"train.py": _SPAWN % 'os.environ["MASTER_PORT"] = os.environ.get("MY_PORT", "12355")'}),
    good(
        "of the job id",
        {"train.py": _SLURM % "url = f\"tcp://{host}:{10000 + int(os.environ['SLURM_JOB_ID']) % 20000}\""},
    ),
    good("an option", {"train.py": _OPTION}),
)
