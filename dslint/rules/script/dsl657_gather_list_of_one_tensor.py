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
from dslint.python.happenings import room_of
from dslint.python.queries.derived import Derived, Piece
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL657",
    name="gather-list-of-one-tensor",
    kind="script",
    severity=Severity.ERROR,
    summary="the list of a gather holds one tensor for all ranks: only the rows of one rank remain",
    markers=(r"\bgather|all_gather", r"\]\s*\*|\*\s*\[|\[\w+ for "),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",
        "https://github.com/pytorch/pytorch/issues/53594",
    ),
    depends_on_run=True,
)
# Names that lead to names: no further.
_DEEPEST = 4


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each gather into a list that repeats one tensor."""
    if run.context.is_one_process:
        return
    seen: set[ast.AST] = set()
    for found in run.occurrences("collective"):
        if "object-collective" in found.event.tags:
            continue
        room = found.event.nodes.get(room_of(row_of(run, found.event)))
        if room is None or found.event.node in seen:
            continue
        seen.add(found.event.node)
        made = _repeated(run.derived, (found.event.module, room))
        if made is not None:
            yield _finding(run, found, made)


def _repeated(derived: Derived, room: Piece) -> Piece | None:
    """Return what makes a list by repeating one tensor, where that is all that it may be but for `None`."""
    made = list(_values(derived, room, 0))
    if not made or not all(_repeats(node) for _, node in made):
        return None
    node = room[1]
    return None if isinstance(node, ast.Name) and _is_filled(room[0].tree, node.id) else made[0]


def _values(derived: Derived, piece: Piece, steps: int) -> Iterator[Piece]:
    """Yield the code of what an expression may be: through names, choices, and functions that return it."""
    module, node = piece
    if isinstance(node, ast.Constant) and node.value is None:
        return
    behind: list[Piece] = []
    if isinstance(node, ast.IfExp):
        behind = [(module, node.body), (module, node.orelse)]
    elif isinstance(node, ast.Name | ast.Attribute):
        behind = list(derived.behind(module, node))
    elif isinstance(node, ast.Call):
        functions = derived.behind(module, node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ()
        behind = [found for function in functions for found in _returned(*function)]
    if not behind or steps > _DEEPEST:
        yield piece
        return
    for inner in behind:
        yield from _values(derived, inner, steps + 1)


def _returned(module: Module, function: ast.AST) -> Iterator[Piece]:
    """Yield what a function returns."""
    if isinstance(function, ast.FunctionDef):
        yield from ((module, n.value) for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None)


def _repeats(node: ast.AST) -> bool:
    """Return whether an expression is `[tensor] * count`, or `[tensor for _ in range(count)]` with a name."""
    if isinstance(node, ast.ListComp) and isinstance(node.elt, ast.Name):
        targets = (n for turn in node.generators for n in ast.walk(turn.target))
        return all(n.id != node.elt.id for n in targets if isinstance(n, ast.Name))
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
        f"`{run.text(*made)}` repeats one tensor: all entries hold the rows of one rank",
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

_ROOT = """\
import torch
import torch.distributed as dist

from rooms import room


def collected(rows):
    parts = None
    if dist.get_rank() == 0:
        parts = room(rows, dist.get_world_size())
    dist.gather(rows.contiguous(), gather_list=parts, dst=0)
    return None if parts is None else torch.stack(parts)
"""
_ROOM = """\
import torch


def room(x, size):
    return %s
"""
_FIELD = """\
import torch
import torch.distributed as dist


class Collector:
    def __init__(self):
        self.parts = %s

    def run(self, rows):
        dist.all_gather(self.parts, rows)
        return torch.cat(self.parts)
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
    bad(
        "the name of one tensor in each turn",
        {
            "a.py": (_GATHER % "[place for _ in range(world_size)]").replace(
                "parts =", "place = torch.empty_like(rows)\n    parts ="
            )
        },
        "a.py:8",
    ),
    bad(
        "made at the root, by a helper of another file",
        {"comm.py": _ROOT, "rooms.py": _ROOM % "[torch.empty_like(x)] * size"},
        "rooms.py:5",
    ),
    bad("a field of an object", {"a.py": _FIELD % "[torch.empty(4)] * dist.get_world_size()"}, "a.py:7"),
    good(
        "a tensor for each rank, made by a helper",
        {"comm.py": _ROOT, "rooms.py": _ROOM % "[torch.empty_like(x) for _ in range(size)]"},
    ),
    good(
        "a field that holds a tensor for each rank",
        {"a.py": _FIELD % "[torch.empty(4) for _ in range(dist.get_world_size())]"},
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
