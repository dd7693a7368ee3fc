"""A parent starts one process for each rank, and does not notice when one of them fails.

**What.** `Process(target=work).start()` or `subprocess.Popen(...)` in a loop over the ranks. Then nothing, or `join()`
and `wait()` one after the other: nobody asks for an exit code, or the parent raises at the first bad one and leaves
the other ranks running.

**Why it hurts.** When one rank dies the others wait for it in their next collective, until the timeout of the group or
without end; the parent waits for rank 0 and says nothing. In the end `join()` and `wait()` return as if all were well:
the program ends with status 0, and a scheduler or script takes the run for a success. A parent that raises leaves
processes running that keep the memory of their GPUs and the port.

**Fix.** Start the ranks with `torch.multiprocessing.spawn` or torchrun, which end all of them when one fails. Or look
at all of them in turns (`poll()`, `exitcode`, `sentinel`), end the others, and leave with a code that is not 0.

**When it stays quiet.** Something looks at exit codes or whether they are alive, and ends the others; one process only;
processes that make no process group (data preparation, servers of a queue); tests; code that hands the list of
processes on to what is not read.

**Evidence.** Python 3.11 and torch 2.13, run with two ranks and gloo: rank 1 leaves with 3, rank 0 fails at its next
`recv`, `join()` returns `None` for both, and the parent ends with 0. That ranks wait for a dead one without an error
is so with NCCL, and was not tried. Read in the code of I-JEPA and LLaMA2-Accessory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Loop, events, walk
from dslint.python.source import Module
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL709",
    name="ranks-nobody-watches",
    kind="script",
    severity=Severity.WARNING,
    summary="a parent starts one process for each rank and does not notice when one fails",
    markers=(r"Popen\(|Process\(",),
    alone=(r"Popen\(|Process\(", r"[rR]ank|RANK"),
    references=(
        "https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.exitcode",
        "https://github.com/facebookresearch/ijepa/blob/main/main.py",
    ),
    depends_on_run=True,
    no_experiment="what a parent asks its processes can be read in the code",
)
_PROCESS, _COMMAND = "multiprocessing.Process", "subprocess.Popen"
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
# What tells that ranks are started by a command.
_RANKED = re.compile(r"[\"'](?:RANK|LOCAL_RANK)[\"']|--(?:local[-_])?rank\b|\bstr\((?:local_)?rank\)")
_ENDS_OTHERS = re.compile(r"\.(?:kill|terminate|send_signal)\b|killpg|os\.kill\b|SIGTERM|SIGKILL|PR_SET_PDEATHSIG")
_LOOKS = re.compile(r"exit_?codes?\b|returncode|\.poll\(|\.sentinel|is_alive\(|active_children|waitpid")
# What looks at all of them, in whatever order they end.
_LOOKS_AT_ALL = re.compile(r"\.poll\(|is_alive\(|\.sentinel|waitpid")
_WAITS = re.compile(r"\.(?:join|wait|communicate)\b")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each place that starts ranks which nobody looks at."""
    if run.is_test:
        return
    for found in run.happenings("spawns", "runs-command"):
        event = found.event
        if event.api not in (_PROCESS, _COMMAND) or event.module.search(_ENDS_OTHERS):
            continue
        how = _unwatched(event.module)
        if how and _is_repeated(found) and _starts_rank(run, found):
            yield _finding(run, event, how)


def _is_repeated(found: Happening) -> bool:
    """Return whether a loop of the parent starts one process after the other."""
    module, node = found.event.module, found.event.node
    if any(isinstance(around, Loop) and around.module is module for around in found.around):
        return True
    parent = module.parents.get(node)
    while parent is not None and not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if isinstance(parent, _LOOPS):
            return True
        parent = module.parents.get(parent)
    return False


def _starts_rank(run: RunQuery, found: Happening) -> bool:
    """Return whether a process is one rank of several: it makes the process group, or is told its rank."""
    event = found.event
    if event.api == _COMMAND:
        function = event.module.function(event.node) or event.module.tree
        text = event.module.text(function) if function is not event.module.tree else event.module.code
        return bool(_RANKED.search(text))
    target = event.arguments.get("target")
    started = {id(atom.node) for atom in target.atoms if isinstance(atom, Function)} if target is not None else set()
    for entry, tree in run.trees():
        bodies = [node.body for node in walk(tree) if isinstance(node, Call) and _runs(node, started)]
        bodies += [tree] if id(entry.node) in started else []
        if any("default-group" in inner.tags for body in bodies for inner in events(body)):
            return True
    return False


def _runs(call: Call, functions: set[int]) -> bool:
    return isinstance(call.function, Function) and id(call.function.node) in functions


def _unwatched(module: Module) -> str:
    """Return what the parent lacks; empty where it looks after its processes."""
    if not module.search(_LOOKS):
        if not module.search(_WAITS):
            return "nothing waits for them"
        return "nobody asks how they ended"
    if module.search(_LOOKS_AT_ALL):
        return ""
    return "the parent waits for them in order and ends none"


def _finding(run: RunQuery, event: Event, how: str) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"one process for each rank, and {how}: when one fails the others hang, and the parent does not notice",
        hint="Use `torch.multiprocessing.spawn` or torchrun; or poll all processes, and end the others when one fails",
    )


_PROCESSES = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size):
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    size = torch.cuda.device_count()
%s
"""
_STARTED = """\
    for rank in range(size):
        mp.Process(target=work, args=(rank, size)).start()"""
_JOINED = """\
    ranks = [mp.Process(target=work, args=(rank, size)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()"""
_WATCHED = """\
    ranks = [mp.Process(target=work, args=(rank, size)) for rank in range(size)]
    for process in ranks:
        process.start()
    while any(process.is_alive() for process in ranks):
        mp.connection.wait([process.sentinel for process in ranks])
        if any(process.exitcode for process in ranks):
            for process in ranks:
                process.terminate()
            raise SystemExit(1)"""
_SPAWNED = "    mp.spawn(work, args=(size,), nprocs=size)"
_COMMANDS = """\
import os
import subprocess
import sys


class Launcher:
    def __init__(self, script, count):
        self.script, self.count = script, count

    def start(self):
        environment = dict(os.environ, WORLD_SIZE=str(self.count))
        self.ranks = []
        for number in range(self.count):
            environment["RANK"] = environment["LOCAL_RANK"] = str(number)
            self.ranks.append(subprocess.Popen([sys.executable, self.script], env=environment))

    def wait(self):
        %s


launcher = Launcher(sys.argv[1], 8)
launcher.start()
launcher.wait()
"""
_IN_ORDER = """\
for rank in self.ranks:
            rank.wait()
            if rank.returncode != 0:
                raise SystemExit(rank.returncode)"""
_POLLED = """\
while self.ranks:
            self.ranks = [rank for rank in self.ranks if rank.poll() is None]"""
_ALL = """\
codes = [rank.wait() for rank in self.ranks]
        for rank in self.ranks:
            rank.kill()
        print(codes)"""
_DATA = """\
import multiprocessing


def clean(part):
    print(part)


if __name__ == "__main__":
    parts = [multiprocessing.Process(target=clean, args=(number,)) for number in range(8)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
"""

EXAMPLES = (
    bad("nothing waits", {"train.py": _PROCESSES % _STARTED}, at="train.py:21 warning"),
    bad("joined, whatever they say", {"train.py": _PROCESSES % _JOINED}, at="train.py:20 warning"),
    bad("waits in order, and ends none", {"launch.py": _COMMANDS % _IN_ORDER}, at="launch.py:15 warning"),
    good("all are watched", {"train.py": _PROCESSES % _WATCHED}),
    good("torch starts and watches them", {"train.py": _PROCESSES % _SPAWNED}),
    good("polled", {"launch.py": _COMMANDS % _POLLED}),
    good("the others are ended", {"launch.py": _COMMANDS % _ALL}),
    good("no ranks", {"prepare.py": _DATA}),
)
