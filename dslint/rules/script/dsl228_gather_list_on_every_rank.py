"""**What.** `dist.gather(tensor, gather_list=parts, dst=0)` (or `gather_object`, or `scatter` with `scatter_list=`) is
called by every rank with a list, where only the destination (of `scatter`: the source) may pass one.

**Why it hurts.** Every other rank raises `ValueError: Argument gather_list must NOT be specified on non-destination
ranks`, and the destination waits for them.

**Fix.** `gather_list=parts if dist.get_rank() == 0 else None`. The safe fix writes that where the destination and the
spelling of `get_rank` are plain.

**When it stays quiet.** Only some ranks come to the call; the list is `None` or another one on some path or on some
ranks, is empty, or nobody knows what it is; the destination is not known; `scatter_object_list`, which ignores the list
of the other ranks.

**Evidence.** torch 2.13 `distributed_c10d._validate_output_list_for_rank` and `scatter`. Two gloo ranks: rank 1 raises
for `gather`, `gather_object` and `scatter`; with `None` there all three pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Alt, Event
from dslint.python.values import Instance, Value
from dslint.python.varies import DIVERGENT, LOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL228",
    name="gather-list-on-every-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="Ranks other than the destination pass a list to `gather`",
    fix="safe",
    markers=(r"distributed|deepspeed",),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.gather",),
    depends_on_run=True,
)

_LISTS = ("builtins.list", "builtins.tuple")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where every rank comes to the call with a list."""
    if run.context.is_one_process:
        return
    for happening in run.happenings("collective"):
        event = happening.event
        row = run.machine.libraries.function(event.api)
        name = str(row.extra.get("root_only", "")) if row is not None else ""
        value = event.arguments.get(name) if name else None
        if value is None or event.open or event.varies & (DIVERGENT | LOST) or event.lanes != run.machine.worlds.full:
            continue
        root = run.waits.root(event)
        is_known = root is None or (root.constants is not None and len(root.constants) == 1)
        # Nobody knows which ranks pass a test of something unknown.
        is_certain = not any(isinstance(n, Alt) and n.then_lanes & n.else_lanes for n in happening.around)
        if is_known and is_certain and _is_list(event, name, value):
            yield _finding(run, event, name)


def _is_list(event: Event, name: str, value: Value) -> bool:
    """Return whether a list with elements is there on every rank."""
    varies, shape, _ = event.snapshot[name]
    if value.varies & (DIVERGENT | LOST) or (varies | shape) & LOST or shape & DIVERGENT:
        return False
    if not all(isinstance(atom, Instance) and atom.cls in _LISTS for atom in value.atoms):
        return False
    return event.items.get(name) != []


def _finding(run: RunQuery, event: Event, name: str) -> Finding:
    short = event.api.rpartition(".")[2]
    where = "the source" if run.waits.root_name(event) == "src" else "the destination"
    return run.finding(
        META,
        event.module,
        event.nodes.get(name, event.node),
        f"every rank passes `{name}` to `{short}`, but only {where} may: the others raise, and {where} waits",
        hint=f"Pass `None` for `{name}` on all ranks but {where}",
        fix=_fix(run, event, name),
        varies=event.varies,
        facts={"call": short},
    )


def _fix(run: RunQuery, event: Event, name: str) -> Fix | None:
    node, value = event.node, event.nodes.get(name)
    is_plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and event.module.path == run.path
    if not is_plain or value is None or "group" in event.arguments:
        return None
    assert isinstance(node, ast.Call)
    if not any(value is given for given in (*node.args, *(k.value for k in node.keywords))):
        return None
    assert isinstance(node.func, ast.Attribute)
    root = event.nodes.get(run.waits.root_name(event))
    target = "0" if root is None else event.module.text(root)
    text = f"{event.module.text(value)} if {event.module.text(node.func.value)}.get_rank() == {target} else None"
    return Fix("Pass the list on one rank only", (Edit(run.path, event.module.span(value), text),))


_HEAD = """\
import torch
import torch.distributed as dist

parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
"""

EXAMPLES = (
    bad(
        "a list everywhere",
        {"eval.py": _HEAD + "dist.gather(score, gather_list=parts, dst=0)\n"},
        at="eval.py:5 error",
        fixed={"eval.py": _HEAD + "dist.gather(score, gather_list=parts if dist.get_rank() == 0 else None, dst=0)\n"},
    ),
    bad(
        "by position, of a distributed run only",
        {
            "eval.py": (
                "import torch.distributed as dist\n\n\ndef collect(score):\n    if not dist.is_initialized():\n"
                "        return [score]\n    found = [None] * dist.get_world_size()\n"
                "    dist.gather_object(score, found)\n    return found\n"
            )
        },
        at="eval.py:8 error",
        fixed={
            "eval.py": (
                "import torch.distributed as dist\n\n\ndef collect(score):\n    if not dist.is_initialized():\n"
                "        return [score]\n    found = [None] * dist.get_world_size()\n"
                "    dist.gather_object(score, found if dist.get_rank() == 0 else None)\n    return found\n"
            )
        },
    ),
    bad(
        "scatter",
        {"share.py": _HEAD + "dist.scatter(mine, parts, src=1)\n"},
        at="share.py:5 error",
        fixed={"share.py": _HEAD + "dist.scatter(mine, parts if dist.get_rank() == 1 else None, src=1)\n"},
    ),
    bad(
        "a helper of another file makes the list",
        {
            "parts.py": "import torch\n\n\ndef room(like, number):\n"
            "    return [torch.zeros_like(like) for _ in range(number)]\n",
            "eval.py": "import torch.distributed as dist\nfrom torch.distributed import get_world_size\n\n"
            "from parts import room\n\n\n"
            "def collect(score):\n    options = {'gather_list': room(score, get_world_size())}\n"
            "    dist.gather(score, **options)\n",
        },
        at="eval.py:8 error",
    ),
    good(
        "the list on the destination only",
        {"eval.py": _HEAD + "dist.gather(score, parts if dist.get_rank() == 0 else None, dst=0)\n"},
    ),
    good(
        "a list that only one rank makes",
        {
            "eval.py": (
                "import torch\nimport torch.distributed as dist\n\nparts = None\nif dist.get_rank() == 0:\n"
                "    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]\n"
                "dist.gather(score, gather_list=parts, dst=0)\n"
            )
        },
    ),
    good(
        "two branches",
        {
            "eval.py": _HEAD + "if dist.get_rank() == 0:\n    dist.gather(score, gather_list=parts, dst=0)\n"
            "else:\n    dist.gather(score, dst=0)\n"
        },
    ),
    good(
        "an empty list is none, and `scatter_object_list` ignores it",
        {
            "eval.py": _HEAD + "dist.gather(score, [])\ndist.scatter_object_list([None], parts, src=0)\n"
            "dist.all_gather(parts, score)\n"
        },
    ),
)
