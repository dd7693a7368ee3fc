"""**What.** The ranks do not make the same process groups: the list of members passed to `new_group` is computed from
the rank of the process or chosen by a test of it, or `new_group` is in a loop whose length is.

**Why it hurts.** Every rank must make every group, in the same order and with the same members, also the groups of
which it is not a member. Otherwise a rank waits in `new_group` for members that make another group under the same name,
or the first collective on the group waits; the job hangs until the timeout of the new group (10 to 30 minutes, not
that of the default group).

**Fix.** Make all groups on all ranks and keep the one that holds this rank:

```python
for first in range(0, world_size, 8):
    members = list(range(first, first + 8))
    group = dist.new_group(members)
    if rank in members:
        mine = group
```

or pass `use_local_synchronization=True`, with which only the members take part.

**When it stays quiet.** `use_local_synchronization` is passed; a group of the rank alone (`new_group([rank])`), which
waits for nobody; the same members in another order; a rank within a subgroup; loop variables and parameters that are
called `rank`; `new_group` under a rank test, which is DSL201, and a loop over one part a rank, which is DSL207.

**Evidence.** Four gloo ranks, torch 2.13: `new_group([rank, (rank + 1) % 4])`, and `new_group()` in
`for _ in range(rank + 1)`, hang; all groups on all ranks pass. Controls: `[rank]` passes, and pairs with
`use_local_synchronization=True` do. Groups that do not overlap get through by luck in some runs over gloo.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.machine import Machine
from dslint.python.values import Atom, Const, PerRank, Value
from dslint.python.varies import ASSUMED, LOCAL, LOST, OWN, RANK, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL226",
    name="group-members-per-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="The ranks make other process groups, since the members or their number come from the rank",
    markers=(r"distributed|deepspeed",),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where all ranks make a group, and its members or how often it is made come from the rank."""
    if run.context.is_one_process:
        return
    for happening in run.happenings("makes-group"):
        event = happening.event
        local = event.arguments.get("use_local_synchronization")
        if event.open or event.lanes != run.machine.worlds.full or (local and local.constants != (False,)):
            continue
        name = next((name for name in ("ranks", "ranks_per_subgroup_list") if name in event.arguments), "")
        if name and _differ(run, event, name):
            yield _finding(run, event, name)
            continue
        loop = _own_loop(happening)
        if loop is not None:
            yield _finding(run, event, "", loop)


def _differ(run: RunQuery, event: Event, name: str) -> bool:
    """Return whether ranks certainly name other members, and more than themselves."""
    varies = event.snapshot[name][0]
    if not varies & RANKED or varies & (LOST | OWN | ASSUMED):
        return False
    if not varies & (RANK | LOCAL) and any("device_count" in module.code for module in run.machine.program.modules()):
        return False  # machines of a job have as many devices
    choices = event.members
    if any(items is not None and len(items) == 1 for items in choices):
        return False
    known = [_members(run.machine, items) for items in choices if items is not None]
    sets = [found for found in known if found is not None]
    if len(sets) == len(choices):
        return any(len({found[lane] for found in sets for lane in group}) > 1 for group in run.machine.worlds.groups)
    return True


def _members(m: Machine, items: list[Value]) -> list[frozenset[object]] | None:
    """Return the members that each lane names; `None` where one of them is not known."""
    columns = [_by_lane(m, item.single) for item in items]
    if any(column is None for column in columns):
        return None
    return [frozenset(column[at] for column in columns if column is not None) for at in range(len(m.worlds.lanes))]


def _by_lane(m: Machine, atom: Atom | None) -> list[object] | None:
    if isinstance(atom, PerRank):
        return list(atom.values)
    return [atom.value] * len(m.worlds.lanes) if isinstance(atom, Const) else None


def _own_loop(happening: Happening) -> Loop | None:
    """Return the loop around a call that counts to a number which comes from the rank."""
    for node in happening.around:
        if isinstance(node, Loop) and node.varies & RANKED and not node.varies & (LOST | OWN | ASSUMED):
            subject = getattr(node.node, "iter", None)
            if isinstance(subject, ast.Call) and getattr(subject.func, "id", "") == "range":
                return node
    return None


def _finding(run: RunQuery, event: Event, name: str, loop: Loop | None = None) -> Finding:
    called = run.text(event.module, event.node.func) if isinstance(event.node, ast.Call) else event.api
    place = event.node if loop is not None else event.nodes.get(name, event.node)
    chosen = "a test of the rank chooses the members" if len(event.members) > 1 else ""
    why = chosen or "these members depend on the rank"
    why = why if loop is None else "this loop depends on the rank"
    related = run.origin(event.arguments.get(name), "the rank") if loop is None else ()
    if loop is not None:
        related = (run.location(loop.module, getattr(loop.node, "iter", loop.node), "the rank"),)
    return run.finding(
        META,
        event.module,
        place,
        f"every rank must make the same groups, but {why}: ranks hang in `{called}`",
        hint="Make all groups on all ranks and keep the one that holds this rank, or pass"
        " `use_local_synchronization=True`",
        related=related,
        varies=event.varies,
        facts={"members": "count" if loop is not None else "members"},
    )


_HEAD = """\
import torch.distributed as dist

rank, world_size = dist.get_rank(), dist.get_world_size()
"""

EXAMPLES = (
    bad(
        "each rank makes a group with its neighbour",
        {"train.py": _HEAD + "pair = dist.new_group([rank, (rank + 1) % world_size])\n"},
        at="train.py:4 error",
    ),
    bad(
        "each rank makes the group of its node",
        {
            "train.py": (
                "import os\n\nimport torch.distributed as dist\n\nrank = int(os.environ['RANK'])\n"
                "first = rank // 8 * 8\nmembers = list(range(first, first + 8))\n"
                "group = dist.new_group(ranks=members, backend='nccl')\n"
            )
        },
        at="train.py:8 error",
    ),
    bad(
        "as many groups as the rank says",
        {"train.py": _HEAD + "for last in range(rank + 1):\n    group = dist.new_group(list(range(last + 1)))\n"},
        at="train.py:5 error",
    ),
    bad(
        "a test of the rank chooses the members",
        {
            "train.py": _HEAD + "if rank < 2:\n    members = [0, 1]\nelse:\n    members = [2, 3]\n"
            "group = dist.new_group(ranks=members)\n"
        },
        at="train.py:8 error",
    ),
    good(
        "a test of the rank orders the same members, and one of the world size chooses them",
        {
            "train.py": _HEAD + "if rank < 2:\n    members = [0, 1]\nelse:\n    members = [1, 0]\n"
            "group = dist.new_group(ranks=members)\n"
            "others = [0, 1] if world_size < 4 else [0, 1, 2, 3]\ngroup = dist.new_group(others)\n"
        },
    ),
    good(
        "all groups on all ranks",
        {
            "train.py": _HEAD + "for first in range(0, world_size, 8):\n    members = list(range(first, first + 8))\n"
            "    group = dist.new_group(members)\n    if rank in members:\n        mine = group\n"
        },
    ),
    good(
        "a group of the rank alone, and one that its members make by themselves",
        {
            "train.py": _HEAD + "alone = dist.new_group([rank])\n"
            "pair = dist.new_group([rank, rank ^ 1], use_local_synchronization=True)\n"
        },
    ),
    good(
        "as many groups as there are machines",
        {
            "train.py": "import torch\n" + _HEAD + "size = torch.cuda.device_count()\n"
            "nodes = [list(range(i * size, (i + 1) * size)) for i in range(world_size // size)]\n"
            "groups = [dist.new_group(ranks=nodes[i]) for i in range(world_size // size)]\n"
        },
    ),
    good(
        "lists and variables of loops that are called rank",
        {
            "train.py": "import torch.distributed as dist\n\nworld_size = dist.get_world_size()\n"
            "local_rank = [0, 1]\nfirst = dist.new_group(local_rank)\n"
            "for rank in range(world_size):\n    group = dist.new_group([rank, 0])\n"
            "groups = [dist.new_group([rank, 0]) for rank in range(1, world_size)]\n"
        },
    ),
    good(
        "a helper that is called for each rank",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\ndef pair(rank):\n"
                "    return dist.new_group([rank, rank + 1])\n\n\n"
                "pairs = [pair(first) for first in range(0, dist.get_world_size(), 2)]\n"
            )
        },
    ),
)
