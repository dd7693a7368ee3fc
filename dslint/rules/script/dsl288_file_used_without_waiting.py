"""One rank makes or removes a file or folder, and other ranks use it without waiting for that.

**What.** Rank 0 makes a folder, writes or moves a file, or clears a folder, and other ranks go straight on to read the
file or to write into the folder. Or the other way round: ranks use a file, and rank 0 removes it, or lists the folder
of their parts, without waiting for them.

**Why it hurts.** The ranks run at their own speed. The one that comes first finds nothing (`FileNotFoundError`), half
of a file, or the file of the run before; what it has already written goes with the folder that rank 0 clears late; and
rank 0 merges the parts that happen to be there. It mostly goes well while files are small and the folder is there.

**Fix.** A barrier between the two: `dist.barrier()`, `accelerator.wait_for_everyone()`. Or let every rank make the
folder with `exist_ok=True`.

**When it stays quiet.** Anything that may wait is in between: a collective, the wrapping of a model, a function
whose name says so; the error is caught or the file looked for; the other ranks make the folder themselves; the path
differs between the ranks or cannot be followed.

**Evidence.** Two gloo ranks, rank 0 half a second late: rank 1 gets `FileNotFoundError` for the file and for the
folder; with a barrier in between both finish.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call
from dslint.python.queries.files import LISTS, MAKES_FOLDER, READS, REMOVES, Race, races
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL288",
    name="file-used-without-waiting",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank makes or removes a file or folder, and others use it without waiting",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine",),
    references=(
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
        "https://github.com/karpathy/nanochat/pull/336",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each use of a path that may come before another rank has done its part."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        # Of several reasons the nearest one.
        nearest = {id(race.second.event.node): race for race in races(run.machine, run.waits, tree)}
        for race in nearest.values():
            nodes = {id(race.first.event.node), id(race.second.event.node)}
            if not nodes & seen:
                seen |= nodes
                yield _finding(run, race)


def _finding(run: RunQuery, race: Race) -> Finding:
    first, second = race.first.event, race.second.event
    message, label = _said(race)
    return run.finding(
        META,
        second.module,
        second.node,
        message,
        hint="Put a barrier between the two",
        related=(
            run.location(first.module, first.node, label),
            *(run.location(c.module, c.node, "called from here") for c in race.second.calls[:-3:-1] if _is_call(c)),
        ),
        varies=first.varies | second.varies,
        facts={"first": race.first.does, "second": race.second.does},
    )


def _is_call(call: Call) -> bool:
    return isinstance(call.node, ast.Call)


def _said(race: Race) -> tuple[str, str]:
    """Return the message and what is said of the place before."""
    first, second = race.first.does, race.second.does
    if second == REMOVES:
        return "Some ranks remove this while others may still use it: nothing makes them wait", "used here"
    if second == LISTS and first != MAKES_FOLDER:
        return "Some ranks list this folder before the others have written their files into it", "written here"
    if first == REMOVES:
        return "This rank writes into a folder that another one may still clear: what it has written is lost", "cleared"
    what = "folder" if first == MAKES_FOLDER else "file"
    does = "uses" if second != READS else "reads"
    return (
        f"Every rank {does} this {what}, but only some ranks create it: the others do not wait and may find nothing",
        "created here, by some ranks only",
    )


_HEAD = """\
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist

"""
_GRAPH = (
    _HEAD
    + """\

def load_graph(args):
    path = args.cache / f"k{args.k}" / "graph.pt"
    if dist.get_rank() == 0 and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".tmp")
        torch.save(build(args), partial)
        partial.rename(path)
%s    return torch.load(path)


def main(args):
    dist.init_process_group("gloo")
    graph = load_graph(args)
    dist.broadcast(graph, 0)
"""
)
_PARTS = """\
import os
import shutil


class Parts:
    def __init__(self, out, rank):
        self.rank = rank
        self.folder = os.path.join(out, "parts")
        if rank == 0:
            if os.path.isdir(self.folder):
                shutil.rmtree(self.folder)
            os.makedirs(self.folder%s)

    def open(self):
        return open(os.path.join(self.folder, f"rank{self.rank}.jsonl"), "w")
"""
_INFER = """\
import torch.distributed as dist

from parts import Parts


def main(args):
    dist.init_process_group("gloo")
    parts = Parts(args.out, dist.get_rank())
%s    file = parts.open()
    file.write("done")
"""
_MERGE = (
    _HEAD
    + """\

def main(args, rows):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(args.out)
    torch.save(rows, folder / f"part{rank}.pt")
%s    if rank == 0:
        parts = [torch.load(p) for p in sorted(folder.glob("part*.pt"))]
        torch.save(parts, folder / "all.pt")
"""
)
_REMOVED = (
    _HEAD
    + """\

def same_start(model, args):
    path = f"{args.out}/start.pt"
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path))
%s    if dist.get_rank() == 0:
        os.remove(path)


def main(args, model):
    dist.init_process_group("gloo")
    same_start(model, args)
"""
)
_LINKS = (
    "import argparse\nimport hashlib\n"
    + _HEAD
    + """\

def download(link, folder):
    target = folder / (hashlib.sha256(link.encode()).hexdigest()[:16] + ".pt")
    if dist.get_rank() == 0 and not target.exists():
        torch.save({"link": link}, target)
%s    return target


def resolved(source, folder):
    if source.startswith("https://"):
        return download(source, folder)
    return Path(source)


def loaded(path):
    return path.read_text()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    for source in args.sources:
        record = loaded(resolved(source, args.folder))


main()
"""
)
_TWO = (
    _HEAD
    + """\

def loaded(path):
    return torch.load(path)


def main(args, model):
    dist.init_process_group("gloo")
    start, last = os.path.join(args.out, "start.pt"), os.path.join(args.out, "last.pt")
    model.load_state_dict(loaded(start))
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), %s)
    model.load_state_dict(loaded(last))
"""
)
_OLDER = (
    _HEAD
    + """\

def main(args, model):
    dist.init_process_group("gloo")
    path = os.path.join(args.out, "start.pt")
    if args.fresh:
        path = os.path.join(args.out, "fresh.pt")
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)
%s    model.load_state_dict(torch.load(path))
"""
)
_RESUMED = (
    _HEAD
    + """\

def main(args, model):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        os.makedirs(args.out, exist_ok=True)
    if args.resume:
        model.load_state_dict(torch.load(os.path.join(args.out, "last.pt")))
"""
)
_OF_EACH = (
    _HEAD
    + """\

def main(args):
    dist.init_process_group("gloo")
    made, given = Path(args.folder) / "made.txt", Path(args.given)
    if dist.get_rank() == 0:
        made.write_text("done")
        source = made
    else:
        source = given
    record = source.read_text()
"""
)
_BARRIER = "    dist.barrier()\n"

_LAST = """\
import os

import torch
from transformers.trainer_utils import get_last_checkpoint

rank = int(os.environ["RANK"])
if %s:
    os.makedirs("out", exist_ok=True)

last = get_last_checkpoint("out")
torch.ones(1)
"""
EXAMPLES = (
    bad("a file that rank 0 computes once", {"train.py": _GRAPH % ""}, "train.py:16"),
    bad(
        "a class in another file clears and makes the folder on rank 0",
        {"parts.py": _PARTS % "", "infer.py": _INFER % ""},
        "parts.py:15",
    ),
    bad("rank 0 merges what the others are still writing", {"train.py": _MERGE % ""}, "train.py:15"),
    bad("rank 0 removes what others still read", {"train.py": _REMOVED % ""}, "train.py:16"),
    bad("a file that was fetched, or one that was there", {"train.py": _LINKS % ""}, "train.py:25"),
    bad("a text that names one of two files", {"train.py": _OLDER % ""}, "train.py:16"),
    bad("one of two files that a function reads", {"train.py": _TWO % "last"}, "train.py:10"),
    bad("the last checkpoint in a folder that rank 0 makes", {"train.py": _LAST % "rank == 0"}, "train.py:10"),
    good("the last checkpoint in a folder that all make", {"train.py": _LAST % "rank >= 0"}),
    good("a barrier in between", {
        "train.py": _GRAPH % _BARRIER, "merge.py": _MERGE % _BARRIER, "start.py": _REMOVED % _BARRIER,
        "parts.py": _PARTS % "", "infer.py": _INFER % _BARRIER, "links.py": _LINKS % _BARRIER,
        "older.py": _OLDER % _BARRIER}),
    good("a folder that is there when a run continues from a file in it", {"train.py": _RESUMED}),
    good("only the rank that made it reads it", {"train.py": _OF_EACH}),
    good("a function reads another file", {"train.py": _TWO % "start"}),
    good("every rank makes the folder", {"parts.py": (_PARTS % ", exist_ok=True").replace(
        "        if rank == 0:\n            if os.path.isdir(self.folder):\n"
        "                shutil.rmtree(self.folder)\n            os", "        os"), "infer.py": _INFER % ""}),
    good("the others look for it", {"train.py": _GRAPH % "    while not path.exists():\n        pass\n"}),
    good("something that may wait", {"train.py": _GRAPH % "    wait_for(args)\n"}),
    good("one process", {"train.py": _GRAPH % ""}, world_size=1),
)  # fmt: skip
