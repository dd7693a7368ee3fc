"""A variable that only some ranks have given a value is read on others: they stop with a `NameError`.

**What.** `if rank == 0: experiment_dir = ...` and, lines later and for all ranks, `os.listdir(experiment_dir)`; a list
of results, a writer or a start time that the main process alone has made, and that a line outside of its block uses.

**Why it hurts.** On one GPU the only process is rank 0, and all is well. On several, every other rank stops at that
line with `UnboundLocalError` (in a module `NameError`): at the first resume, at the first report, after an
evaluation. Rank 0 continues, and waits for the others in its next collective.

**Fix.** Give the variable a value on every rank, or put the line under the same test; send what rank 0 alone can know
with `broadcast_object_list`.

**When it stays quiet.** A test that nobody can read is around one of the two places, or one that asks for the rank; the
exception is caught; the ranks without it have left before (`return`, `sys.exit(0)`); a variable that had a value
before.

**Evidence.** Two gloo ranks, torch 2.13: rank 1 stops with `UnboundLocalError`, and rank 0 never leaves its
`all_reduce`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.bindings import UNBOUND
from dslint.python.events import Event
from dslint.python.varies import DIVERGENT
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.latefailures import is_caught_on_way
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery
from dslint.rules.training.trackers import asks_for_rank, is_for_all

META = RuleMeta(
    code="DSL748",
    name="name-of-some-ranks",
    kind="script",
    severity=Severity.ERROR,
    summary="a variable that only some ranks have given a value is read on others: `NameError` there",
    markers=(r"(?i)rank|main_process|is_main|is_master|process_index", r"torch|accelerat|deepspeed|lightning|horovod"),
    references=("https://docs.python.org/3/reference/executionmodel.html#resolution-of-names",),
    depends_on_run=True,
)

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first line that reads such a variable."""
    if run.context.is_one_process:
        return
    full = run.machine.worlds.full
    told: set[tuple[int, object]] = set()
    for found in run.happenings(UNBOUND):
        event = found.event
        if event.receiver is None or event.may or not is_for_all(found) or asks_for_rank(found):
            continue
        if event.lanes != full or event.varies & DIVERGENT or is_caught_on_way(found, "NameError", "UnboundLocalError"):
            continue
        (name,) = event.arguments["name"].constants or ("",)
        scope = function_around(event.module, event.node) or event.module.tree
        if (id(scope), name) in told or _others_have_left(scope, event):
            continue
        told.add((id(scope), name))
        split = event.origins.get("name")
        is_rest = isinstance(event.node, ast.Name) and isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"Only some ranks have given `{name}` a value: the others stop here with "
            f"`{'UnboundLocalError' if is_rest else 'NameError'}`",
            hint=f"Give `{name}` a value on every rank, or use it under the same test",
            related=(split[0].location(split[1], "only the ranks of this test give it one"),) if split else (),
        )


def _others_have_left(scope: ast.AST, event: Event) -> bool:
    """Return whether a line above sends ranks away where a test around the read says so: both ask for one thing."""
    asked: set[str] = set()
    inside: set[ast.AST] = set()
    around = event.module.parents.get(event.node)
    while around is not None and around is not scope:
        inside.add(around)
        asked |= _names(around.test) if isinstance(around, ast.If) else set()
        around = event.module.parents.get(around)
    line = getattr(event.node, "lineno", 0)
    return any(
        isinstance(node, ast.If)
        and node.lineno < line
        and node not in inside
        and isinstance(node.body[-1], _LEAVES)
        and isinstance(node.test, ast.BoolOp)
        and bool(_names(node.test) & asked)
        for node in ast.walk(scope)
    )


def _names(test: ast.expr) -> set[str]:
    found = {node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(test)
             if isinstance(node, ast.Name | ast.Attribute)}  # fmt: skip
    return found - {"args", "self", "cfg", "config"}


_TRAIN = """\
import argparse
import glob
import os
import time

import torch
import torch.distributed as dist


def is_main():
    return dist.get_rank() == 0


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
%s
    if args.resume:
        model.load_state_dict(torch.load(sorted(glob.glob(os.path.join(folder, "*.pt")))[-1], weights_only=True))
    for step in range(10):
        loss = model(torch.rand(4, 4)).mean()
        loss.backward()
%s
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
"""
_MADE = '    folder = "out"'
_OWN = '    if rank == 0:\n        folder = "out/%03d" % len(os.listdir("out"))\n        os.makedirs(folder)'
_LAST = (
    "        total = loss.detach()\n        dist.all_reduce(total)\n"
    "        if %s:\n            mean = total.item() / dist.get_world_size()\n"
    '        print(f"{step}: {mean}")'
)
_SCRIPT = """\
import os

import torch.distributed as dist

dist.init_process_group("gloo")
if %s:
    results = {}
for name in ("a", "b"):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, name)
%s
dist.destroy_process_group()
"""

_BAR = """\
import argparse

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm


def main(args, data):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    step = 0
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        batches = %s
        if rank == 0:
            bar = tqdm(batches, total=len(loader))
            batches = bar
        for %s in batches:
            model(x).mean().backward()
            step += 1
            if %s:
                %s
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0)
    main(parser.parse_args(), torch.load("rows.pt"))
"""
_LIMIT = "args.limit and step >= args.limit"

_REPORT = """\
def report(rank, full):
    if rank != 0 and not full:
        return
    if rank == 0:
        folder = "out"
    if full:
        print("full")
    else:
        print(folder)
"""

EXAMPLES = (
    bad("the folder of the run", {"train.py": _TRAIN % (_OWN, "")}, "train.py:22 error"),
    bad("of the main process, by a helper", {
        "train.py": _TRAIN % (_OWN.replace("rank == 0", "is_main()"), "")}, "train.py:22 error"),
    bad("the mean of a step", {"train.py": _TRAIN % (_MADE, _LAST % "rank == 0")}, "train.py:28 error"),
    bad("in a module", {"run.py": _SCRIPT % ('int(os.environ["RANK"]) == 0', "    results[name] = found")},
        "run.py:11 error"),
    bad("in a function that is called then", {"run.py": (_SCRIPT % (
        "dist.get_rank() == 0", "    put(name, found)")).replace(
        "dist.init", "\ndef put(name, found):\n    results[name] = found\n\n\ndist.init", 1)}, "run.py:7 error"),
    good(
        "the others have ended",
        {"run.py": "import sys\n" + _SCRIPT % (
            "dist.get_rank() == 0", "    if dist.get_rank() != 0:\n        sys.exit(0)\n    results[name] = found")},
        select="DSL748",
    ),
    good("the others have ended, by a helper", {"run.py": "import sys\n" + (_SCRIPT % (
        "dist.get_rank() == 0", "    done(dist.get_rank())\n    results[name] = found")).replace("dist.init",
        "OK = 0\n\ndef done(rank):\n    if rank:\n        raise SystemExit(OK)\n\n\ndist.init", 1)}, select="DSL748"),
    bad("an exit that nobody takes", {"run.py": "import sys\n" + _SCRIPT % (
        "dist.get_rank() == 0", "    if len(found) == 9:\n        sys.exit(0)\n    results[name] = found")},
        "run.py:14 error"),
    bad("the ranks that leave are others", {"run.py": _SCRIPT % (
        "dist.get_rank() == 0", "    if dist.get_rank() > 8:\n        raise SystemExit(1)\n"
        "    results[name] = found")}, "run.py:13 error"),
    bad("a progress bar that all close", {
        "train.py": _BAR % ("enumerate(loader)", "i, x", _LIMIT, "bar.close()")}, "train.py:25 error"),
    bad("where a limit is one number", {
        "train.py": _BAR % ("loader", "x", "step == args.limit", 'bar.set_description("done")')}, "train.py:25 error"),
    bad("with a line of the main process before", {"train.py": _BAR % (
        "loader", "x", "rank == 0 and step % 10 == 0:\n                bar.set_description(str(step))\n            "
        f"if {_LIMIT}", "bar.write(str(step))")}, "train.py:27 error"),
    good("a progress bar that the main process closes", {"train.py": _BAR % (
        "enumerate(loader)", "i, x", f"{_LIMIT} and rank == 0", "bar.close()")}, select="DSL748"),
    good("closed under a test inside", {"train.py": _BAR % (
        "enumerate(loader)", "i, x", _LIMIT, "if rank == 0:\n                    bar.close()")}, select="DSL748"),
    good("on every rank", {"train.py": _TRAIN % (_MADE, "")}),
    good("a value before", {"train.py": _TRAIN % (_MADE + "\n" + _OWN, "")}),
    good("one for the others", {"train.py": _TRAIN % (_OWN + "\n    else:\n        folder = None", "")}),
    good("under the same test", {"run.py": _SCRIPT % (
        "dist.get_rank() == 0", "    if dist.get_rank() == 0:\n        results[name] = found")}),
    good("by another word for it", {"run.py": _SCRIPT % (
        'dist.get_rank() == 0', '    if int(os.environ["RANK"]) == 0:\n        results[name] = found')}),
    good("the others have left", {"run.py": _SCRIPT % (
        "dist.get_rank() == 0", "    if dist.get_rank() != 0:\n        continue\n    results[name] = found")}),
    good("the others have left in this mode", {"run.py": (_SCRIPT % (
        "dist.get_rank() == 0", "    print(found)\nreport(dist.get_rank(), \"FULL\" in os.environ)")).replace(
        "dist.init", f"\n{_REPORT}\n\ndist.init", 1)}),
    good("handed to a function under the same test", {"run.py": (_SCRIPT % (
        "dist.get_rank() == 0", "    if dist.get_rank() == 0:\n        put(results, name, found)")).replace(
        "dist.init", "\ndef put(held, name, found):\n    held[name] = found\n\n\ndist.init", 1)}),
    good("the exception is caught", {"run.py": _SCRIPT % (
        "dist.get_rank() == 0",
        "    try:\n        results[name] = found\n    except NameError:\n        pass")}),
    good("a test that nobody can read", {"run.py": _SCRIPT % (
        "dist.get_rank() == 0", '    if os.path.exists("main"):\n        results[name] = found')}),
)  # fmt: skip
