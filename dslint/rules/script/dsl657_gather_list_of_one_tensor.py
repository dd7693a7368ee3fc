"""The list that takes in what the ranks send holds one tensor again and again.

**What.** `all_gather` or `gather` gets `[torch.zeros_like(x)] * world_size`: the list has an entry for each rank, and
all entries are the same tensor.

**Why it hurts.** What each rank sends is copied into its entry, one after another, into the same memory. Afterwards
all entries hold the rows of one rank: metrics and contrastive losses see these rows several times and the others never.
Nothing fails.

**Fix.** Make a tensor for each rank: `[torch.zeros_like(x) for _ in range(world_size)]`.

**When it stays quiet.** Entries that are set one by one later on; gathers of objects, which replace the entries; lists
that the file does not show.

**Evidence.** Two gloo ranks, torch 2.13: rank 0 sends 1, rank 1 sends 2, and both get [2, 2]. With a tensor for each
rank they get [1, 2].
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.derived import Derived, Piece
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL657",
    name="gather-list-of-one-tensor",
    kind="script",
    severity=Severity.ERROR,
    summary="the list of a gather holds one tensor for all ranks: only the rows of one rank remain",
    markers=(r"\bgather|all_gather", r"\]\s*\*|\*\s*\["),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",
        "https://github.com/pytorch/pytorch/issues/53594",
    ),
    depends_on_run=True,
)
# The arguments that take in a tensor of each rank.
_ROOMS = {
    "torch.distributed.all_gather": "tensor_list",
    "torch.distributed.gather": "gather_list",
    "deepspeed.comm.all_gather": "tensor_list",
    "deepspeed.comm.gather": "gather_list",
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each gather into a list that repeats one tensor."""
    if run.context.is_one_process:
        return
    derived: Derived | None = None
    seen: set[ast.AST] = set()
    for found in run.occurrences("collective"):
        room = found.event.nodes.get(_ROOMS.get(found.event.api, ""))
        if room is None or found.event.node in seen:
            continue
        seen.add(found.event.node)
        derived = derived or Derived(run.machine.program.modules(), (tree for _, tree in run.trees()))
        made = _repeated(derived, (found.event.module, room))
        if made is not None:
            yield _finding(run, found, made)


def _repeated(derived: Derived, room: Piece) -> Piece | None:
    """Return what makes a list by repeating one tensor, where that is all that a name may hold."""
    module, node = room
    if not isinstance(node, ast.Name):
        return room if _repeats(node) else None
    given = list(derived.of_name(module, node))
    if not given or not all(_repeats(value) for _, value in given) or _is_filled(given[0][0].tree, node.id):
        return None
    return given[0]


def _repeats(node: ast.AST) -> bool:
    """Return whether an expression is `[tensor] * count`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    lists = [side for side in (node.left, node.right) if isinstance(side, ast.List)]
    return len(lists) == 1 and len(lists[0].elts) == 1 and not isinstance(lists[0].elts[0], ast.Constant | ast.Starred)


def _is_filled(tree: ast.Module, name: str) -> bool:
    """Return whether entries of the list are set one by one somewhere."""
    stores = (n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return any(isinstance(n.value, ast.Name) and n.value.id == name for n in stores)


def _finding(run: RunQuery, found: Happening, made: Piece) -> Finding:
    return run.finding(
        META,
        *made,
        f"`{run.text(*made)}` is one tensor under every index: the ranks' rows are written over each other, and all"
        " entries hold those of one rank",
        hint="Make a tensor for each rank: `[torch.empty_like(x) for _ in range(world_size)]`",
        related=(run.location(found.event.module, found.event.node, "gathered here"),),
    )


_GATHER = """\
import torch
import torch.distributed as dist


def gathered(rows):
    world_size = dist.get_world_size()
    parts = %s
    dist.all_gather(parts, rows)
    return torch.cat(parts)
"""

EXAMPLES = (
    bad("one tensor again and again", {"a.py": _GATHER % "[torch.zeros_like(rows)] * world_size"}, "a.py:7"),
    bad(
        "in place, at the root",
        {
            "a.py": """\
import torch
import torch.distributed as dist


def collected(score):
    if dist.get_rank() == 0:
        dist.gather(score, dist.get_world_size() * [torch.empty(1)])
    else:
        dist.gather(score)
"""
        },
        "a.py:7",
    ),
    good("a tensor for each rank", {"a.py": _GATHER % "[torch.zeros_like(rows) for _ in range(world_size)]"}),
    good("rows of one large tensor", {"a.py": _GATHER % "list(rows.new_empty(world_size, *rows.shape).unbind())"}),
    good(
        "objects replace the entries",
        {
            "a.py": """\
import torch.distributed as dist


def gathered(rows):
    parts = [rows] * dist.get_world_size()
    dist.all_gather_object(parts, rows)
    return parts
"""
        },
    ),
    good(
        "entries that are set later",
        {
            "a.py": """\
import torch
import torch.distributed as dist


def gathered(rows):
    parts = [rows] * dist.get_world_size()
    for index in range(len(parts)):
        parts[index] = torch.empty_like(rows)
    dist.all_gather(parts, rows)
    return torch.cat(parts)
"""
        },
    ),
)
