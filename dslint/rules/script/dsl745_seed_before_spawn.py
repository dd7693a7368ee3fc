"""The seed is set before the ranks are spawned, and no rank sets it.

**What.** `torch.manual_seed(args.seed)` in the process that calls `torch.multiprocessing.spawn(worker, ...)`, and
nothing in `worker` seeds.

**Why it hurts.** Spawned processes are new interpreters: the state of the generators does not go with them. Each rank
draws from a seed of chance, so the setting has no effect, and no run can be repeated: another order of the data, other
noise, other weights where nothing broadcasts them. Nothing fails.

**Fix.** Seed at the top of the function that is spawned, with the rank in the number where ranks should draw
differently.

**When it stays quiet.** The ranks seed, too, or some of their code is not read to its end and any file of the run has
another call with `seed` in its name; `start_method="fork"`, which copies the state; code of the script outside of
functions, which new processes run, too.

**Evidence.** torch 2.13, run twice: the parent seeds torch, NumPy and `random` with 0, and two spawned processes draw
other numbers from each of the three in every run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, Event, Lost, Node, walk
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.sureways import is_main
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL745",
    name="seed-before-spawn",
    kind="script",
    severity=Severity.WARNING,
    summary="the seed is set before the ranks are spawned: they are new processes, and no rank sets it",
    markers=(r"seed\w*\(", r"spawn\("),
    references=(
        "https://pytorch.org/docs/stable/multiprocessing.html#spawning-subprocesses",
        "https://pytorch.org/docs/stable/notes/randomness.html",
    ),
    depends_on_run=True,
    no_experiment="what the processes draw depends on chance; it was run by hand, see the evidence",
)
_SPAWN = "torch.multiprocessing.spawn"
_SEEDS = re.compile(r"(?i)seed")
_TRAINS = ("backward", "engine-backward", "gives-loss", "makes-loader", "draws")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the last seed before a spawn whose processes set none."""
    if not run.has("seeds") or not run.has(*_TRAINS):
        return
    for order in run.ordered:
        seeds: list[tuple[Event, tuple[Node, ...]]] = []
        for event, around in order:
            if "seeds" in event.tags and not _runs_again(event, around):
                seeds.append((event, around))
            elif event.api == _SPAWN and _is_new(event):
                inside = [node for _, others in order for node in others if _is_of(node, event)]
                before = [found for found in seeds if not any(_is_of(node, event) for node in found[1])]
                if before and inside and not _seeds_inside(run, inside[0], before):
                    yield _finding(run, *before[-1], event, around)
                    return


def _runs_again(seed: Event, around: tuple[Node, ...]) -> bool:
    """Return whether new processes seed while they import the script: by code outside of functions and of the guard."""
    module, node = _place(seed, around)
    parent = module.parents.get(node)
    while parent is not None:
        if is_main(parent) or isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        parent = module.parents.get(parent)
    return True


def _place(event: Event, around: Iterable[Node]) -> tuple[Module, ast.AST]:
    """Return the outermost of the calls around an event; the event itself where there is none."""
    first = next((node for node in around if isinstance(node, Call)), None)
    return (event.module, event.node) if first is None else (first.module, first.node)


def _is_new(event: Event) -> bool:
    """Return whether the processes are new interpreters."""
    method = event.arguments.get("start_method")
    return not event.open and (method is None or method.constants == ("spawn",))


def _is_of(node: Node, spawn: Event) -> bool:
    return isinstance(node, Call) and node.node is spawn.node


def _seeds_inside(run: RunQuery, started: Node, before: list[tuple[Event, tuple[Node, ...]]]) -> bool:
    """Return whether the spawned code may seed: an event says so, or unread code has a word for it."""
    inside = list(walk(started))
    if any(isinstance(node, Event) and "seeds" in node.tags for node in inside):
        return True
    if not any(isinstance(node, Lost) for node in inside):
        return False
    known = {id(event.node) for event, _ in before}
    known |= {id(node.node) for _, around in before for node in around if isinstance(node, Call)}
    calls = (call for module in run.machine.program.modules() for call in module.nodes_of(ast.Call))
    return any(_SEEDS.search(ast.unparse(call.func)) and id(call) not in known for call in calls)


def _finding(run: RunQuery, seed: Event, around: tuple[Node, ...], spawn: Event, spawned: tuple[Node, ...]) -> Finding:
    place = _place(seed, (node for node in around if node not in spawned))
    return run.finding(
        META,
        *place,
        f"`{run.text(*place, 45)}` seeds the parent only: spawned ranks start without it",
        hint="Seed at the top of the function that is spawned",
        related=(run.location(spawn.module, spawn.node, "new processes start here"),),
    )


_TRAIN = """\
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def worker(rank, seed):
    dist.init_process_group("gloo", rank=rank, world_size=2)
%s    model = DDP(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        loss = model(torch.randn(4, 8)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main():
    seed = 3
%s    mp.spawn(worker, args=(seed,), nprocs=2%s)


if __name__ == "__main__":
    main()
"""
_SET, _OPTION = "    set_seed(seed)\n", "    if seed is not None:\n        set_seed(seed)\n"

EXAMPLES = (
    bad("a helper", {"train.py": _TRAIN % ("", _SET, "")}, "train.py:29 warning"),
    bad("torch alone", {"train.py": _TRAIN % ("", "    torch.manual_seed(seed)\n", "")}, "train.py:29 warning"),
    bad("by an option", {
        "train.py": (_TRAIN % ("", _OPTION, "")).replace("seed = 3", "seed = int(input()) or None")},
        "train.py:30 warning"),
    bad("the function is in another file", {
        "work.py": (_TRAIN % ("", _SET, "")).partition("\n\ndef main")[0] + "\n",
        "train.py": "import torch.multiprocessing as mp\n\nfrom work import set_seed, worker\n\n"
        'if __name__ == "__main__":\n    set_seed(3)\n    mp.spawn(worker, args=(3,), nprocs=2)\n'}, "train.py:6"),
    good("each rank seeds", {"train.py": _TRAIN % ("    set_seed(seed + rank)\n", _SET, "")}),
    good("each rank seeds, and nothing else", {"train.py": _TRAIN % (_SET, "", "")}),
    good("new processes run it while they import the script", {
        "train.py": (_TRAIN % ("", "", "")).replace("\n\ndef worker", "\n\nset_seed(3)\n\n\ndef worker")}),
    good("the state is copied", {"train.py": _TRAIN % ("", _SET, ', start_method="fork"')}),
)  # fmt: skip
