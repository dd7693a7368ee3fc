"""The list that takes in what the ranks send has a length that is written out.

**What.** `all_gather` or `gather` gets a list of, say, four tensors, whatever the number of processes is:
`[torch.zeros_like(x) for _ in range(4)]`, four tensors in brackets, two such lists in one.

**Why it hurts.** The list needs one entry for each process of the group. The script runs on four GPUs and stops with
an exception at this call on two, eight or sixteen, often hours into the run, where an evaluation gathers its results.
A list of objects that is too long keeps `None` at its end.

**Fix.** `[torch.zeros_like(x) for _ in range(dist.get_world_size())]`.

**When it stays quiet.** The length is not known or comes from an option; as many processes are started; a group is
passed; the script itself fixes the number of processes (`world_size=4`, `nprocs=4`) or tests for it; one process.

**Evidence.** Two gloo ranks, torch 2.13: a list of four is refused by `all_gather` and `gather`, one of two is
filled. NCCL checks the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.happenings import room_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping.ddps import is_of_all

META = RuleMeta(
    code="DSL742",
    name="gather-list-of-fixed-length",
    kind="script",
    severity=Severity.WARNING,
    summary="the list of a gather has a length that is written out: it is wrong for any other number of processes",
    markers=(r"\bgather|all_gather",),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",),
    depends_on_run=True,
)
_COUNTS = re.compile(r"(?i)world|num_proc|nproc|n_?gpu|device_count|ranks|size")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each gather into a list whose length is certain and not that of the group."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for found in run.occurrences("collective"):
        length = _length(found) if found.event.entries and id(found.event.node) not in seen else 0
        if length < 2 or not is_of_all(found.event) or _is_meant(run, length):
            continue
        seen.add(id(found.event.node))
        yield _finding(run, found, length)


def _length(found: Happening) -> int:
    """Return the one length that the list has in any case; 0 where it is not known."""
    lengths = set(found.event.entries)
    return (next(iter(lengths)) or 0) if len(lengths) == 1 and not found.event.open else 0


def _is_meant(run: RunQuery, length: int) -> bool:
    """Return whether as many processes run, or the script itself fixes or tests their number."""
    if run.context.world_size.get_or(0) == length or run.has("spawns", "runs-command"):
        return True
    for made in run.occurrences("starts-group"):
        stated = run.likely(made.event.arguments.get("world_size"))
        if stated is not None and length in stated:
            return True
    tests = (node for module in run.machine.program.modules() for node in module.nodes_of(ast.Compare))
    return any(_asks_for(node, length) for node in tests)


def _asks_for(test: ast.Compare, length: int) -> bool:
    """Return whether a test compares a number of processes with this one."""
    sides = (test.left, *test.comparators)
    is_named = any(isinstance(side, ast.Constant) and side.value == length for side in sides)
    return is_named and _COUNTS.search(ast.unparse(test)) is not None


def _finding(run: RunQuery, found: Happening, length: int) -> Finding:
    event, world = found.event, run.context.world_size
    node = event.nodes.get(room_of(row_of(run, event)), event.node)
    number = world.get_or(0)
    is_other = number > 1
    what = f"and {number} processes run" if is_other else "wrong for any other number of processes"
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, node, 30)}` has {length} entries, one for each process is needed: {what}",
        hint="Make one for each process: `[torch.empty_like(x) for _ in range(dist.get_world_size())]`",
        related=tuple(place.labelled("the number of processes") for place in world.origins) if is_other else (),
        facts={"entries": length},
    )


_SCRIPT = """\
import torch
import torch.distributed as dist


def score(x):
    %s
    dist.all_gather(parts, x)
    return torch.cat(parts).mean()


def main(loader):
    dist.init_process_group("nccl")
    for x in loader:
        print(score(x))


main(torch.load("loader.pt"))
"""
_EACH = "parts = [torch.zeros_like(x) for _ in range(%s)]"
_JOINED = "parts = [torch.zeros_like(x), *[torch.zeros_like(x) for _ in range(3)]]"
_ROOT = """\
import torch
import torch.distributed as dist
from settings import GPUS


def room(x, number):
    return [torch.empty_like(x) for _ in range(number)]


def collect(x):
    parts = room(x, %s) if dist.get_rank() == 0 else None
    dist.gather(x, gather_list=parts, dst=0)
    return parts


dist.init_process_group("gloo")
collect(torch.ones(1))
"""
_SETTINGS = "GPUS = 8\n"
_RUN = "torchrun --nproc_per_node %d train.py\n"

EXAMPLES = (
    bad("four in each turn", {"train.py": _SCRIPT % _EACH % "4"}, "train.py:7 warning"),
    bad("two in brackets", {"train.py": _SCRIPT % "parts = [torch.zeros_like(x), torch.zeros_like(x)]"}, "train.py:7"),
    bad("two lists in one", {"train.py": _SCRIPT % _JOINED}, "train.py:7 warning"),
    bad("at the root, a number of another file", {"train.py": _ROOT % "GPUS", "settings.py": _SETTINGS}, "train.py:12"),
    bad("eight run", {"train.py": _SCRIPT % _EACH % "4", "run.sh": _RUN % 8}, "train.py:7 warning"),
    bad("objects", {
        "train.py": (_SCRIPT % "parts = [None for _ in range(4)]").replace("all_gather", "all_gather_object")},
        "train.py:7"),
    good("one more is appended", {
        "train.py": _SCRIPT % (_EACH % "8" + "\n    if x.sum() > 0:\n        parts.append(x.clone())")}),
    good("four run", {"train.py": _SCRIPT % _EACH % "4", "run.sh": _RUN % 4}),
    good("as many as there are", {"train.py": _SCRIPT % _EACH % "dist.get_world_size()"}),
    good("the root asks", {"train.py": _ROOT % "dist.get_world_size()", "settings.py": _SETTINGS}),
    good("the script fixes the number", {
        "train.py": (_SCRIPT % _EACH % "4").replace('"nccl"', '"nccl", world_size=4')}),
    good("the script tests for it", {
        "train.py": (_SCRIPT % _EACH % "4").replace("    for x", "    assert dist.get_world_size() == 4\n    for x")}),
    good("a group of four", {
        "train.py": (_SCRIPT % _EACH % "4").replace("(parts, x)", "(parts, x, group=dist.new_group([0, 1, 2, 3]))")}),
)  # fmt: skip
