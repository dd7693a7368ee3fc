"""The root of a collective on a subgroup is given as an index within the group instead of a rank of the job.

**What.** `dist.broadcast(x, src=index, group=group)`, `reduce(dst=...)`, `scatter`, `gather` and their kin for objects
count ranks of the whole job, also when a group is given. The script passes what counts within the group:
`get_rank(group)`, `i % get_world_size(group)`, `group.rank()`. Or a fixed rank, for groups that are made in a loop, one
for each machine or stage: only the first of them holds it.

**Why it hurts.** In every group but the first the rank is not a member: the call raises `ValueError` ("Global rank 0 is
not part of group") or, in some releases, waits forever. On one machine, whose only group is the first, all is well.

**Fix.** `dist.get_global_rank(group, index)`, or `group_src=` / `group_dst=` (torch 2.6 or later).

**When it stays quiet.** No group is given, or one of all ranks; the index was turned into a rank of the job
(`get_global_rank`, a sum with the first rank of the group); groups whose making is not seen.

**Evidence.** Four gloo ranks in two groups of two, torch 2.13: with `src=0` the second group raises `ValueError`; with
`get_global_rank` both finish.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.results import GROUP_RANK, GROUP_SIZE
from dslint.python.values import Instance, Tuple, Unknown, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL292",
    name="group-index-as-root",
    kind="script",
    severity=Severity.WARNING,
    summary="the root of a collective on a subgroup is an index within the group, and counts ranks of the job",
    markers=(r"torch|deepspeed",),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast",
        "https://github.com/meta-pytorch/torchrec/pull/4601",
    ),
    depends_on_run=True,
)
# What turns an index within a group into a rank of the job.
_SHIFTS = frozenset({ast.Add, ast.Mult, ast.Sub, operator.add, operator.mul, operator.sub})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each collective on a subgroup whose root counts within the group."""
    if run.context.is_one_process:
        return
    for found in run.happenings("collective", "object-collective", "point-to-point"):
        event = found.event
        root = str(row_of(run, event).get("root") or row_of(run, event).get("peer") or "")
        value = event.arguments.get(root)
        made = _subgroup(run, event.arguments.get("group"))
        if value is None or made is None:
            continue
        is_index = _counts_in_group(value)
        if is_index or (value.constants and None not in value.constants and _is_one_of_many(made, event)):
            yield _finding(run, event, root, made, is_index=is_index)


def _finding(run: RunQuery, event: Event, root: str, made: Event, *, is_index: bool) -> Finding:
    name = event.api.rpartition(".")[2]
    what = "is an index in the group" if is_index else "belongs to one of the groups only"
    return run.finding(
        META,
        event.module,
        event.nodes.get(root) or event.node,
        f"The `{root}` of `{name}` {what}, but must be a rank of the job: other groups raise `ValueError`",
        hint=f"Pass `dist.get_global_rank(group, index)`, or the index as `group_{root}`",
        related=(run.location(made.module, made.node, "the group is made here and does not hold all ranks"),),
        facts={"index": is_index, "call": name},
    )


def _subgroup(run: RunQuery, group: Value | None) -> Event | None:
    """Return what made a group of some ranks; `None` where it is not seen or may hold all."""
    for atom in group.atoms if group is not None else ():
        made = run.makers.get(atom) if isinstance(atom, Instance) else None
        if made is not None and "makes-group" in made.tags:
            ranks = made.arguments.get("ranks")
            is_part = ranks is not None and ranks.constants != (None,) and not made.open
            return made if (is_part and _is_looped(made)) or _is_split(made) else None
    return None


def _is_looped(made: Event) -> bool:
    """One group for each turn of a loop: together they hold all ranks, each some of them."""
    result = made.result.single if made.result is not None else None
    return isinstance(result, Instance) and bool(result.loop)


def _is_split(made: Event) -> bool:
    """The call cuts the job into several groups at once, and gives that of this rank."""
    return made.result is not None and isinstance(made.result.single, Tuple)


def _is_one_of_many(made: Event, event: Event) -> bool:
    return (_is_looped(made) or _is_split(made)) and not event.varies


def _counts_in_group(value: Value) -> bool:
    """The number comes from the rank in a group or from the size of one, and nothing is added to it."""
    parts = list(_parts((value.number, *value.atoms)))
    is_counted = any(isinstance(part, Unknown) and part.reason in (GROUP_RANK, GROUP_SIZE) for part in parts)
    return is_counted and not any(isinstance(p, type | type(operator.add)) and p in _SHIFTS for p in parts)


def _parts(number: object) -> Iterator[object]:
    if isinstance(number, tuple):
        for part in number:
            yield from _parts(part)
    else:
        yield number


_GROUPS = """\
import torch.distributed as dist


def make_groups(size):
    mine = None
    for start in range(0, dist.get_world_size(), size):
        members = list(range(start, start + size))
        group = dist.new_group(members)
        if dist.get_rank() in members:
            mine = group
    return mine
"""
_OPTIMIZER = """\
import torch.distributed as dist


class Sharded:
    def __init__(self, params, group):
        self.params = list(params)
        self.group = group
        self.shards = dist.get_world_size(group)

    def step(self):
        for index, param in enumerate(self.params):
            owner = %s
            dist.broadcast(param.data, src=owner, group=self.group)
"""
_TRAIN = """\
import torch.distributed as dist

from groups import make_groups
from sharded import Sharded


def main(model):
    dist.init_process_group("gloo")
    optimizer = Sharded(model.parameters(), make_groups(2))
    optimizer.step()
"""
_LEADER = """\
import torch.distributed as dist

from groups import make_groups


def main(settings):
    dist.init_process_group("gloo")
    group = %s
    found = [settings]
    dist.broadcast_object_list(found, %s, group=group)
"""

EXAMPLES = (
    bad("an optimizer that shares out its parameters over the ranks of a machine",
        {"groups.py": _GROUPS, "sharded.py": _OPTIMIZER % "index % self.shards", "train.py": _TRAIN}, "sharded.py:13"),
    bad("a fixed rank, which only the first group holds",
        {"groups.py": _GROUPS, "train.py": _LEADER % ("make_groups(4)", "0")}, "train.py:10"),
    bad("the groups of new_subgroups, and the rank within one",
        {"train.py": (_LEADER % ("dist.new_subgroups(2)[0]", "src=dist.get_rank(group) % 2")).replace(
            "from groups import make_groups\n\n", "")}, "train.py:8"),
    good("the index becomes a rank of the job", {
        "groups.py": _GROUPS, "train.py": _TRAIN,
        "sharded.py": _OPTIMIZER % "dist.get_global_rank(self.group, index % self.shards)"}),
    good("the first rank of the group is added", {
        "groups.py": _GROUPS, "train.py": _TRAIN,
        "sharded.py": _OPTIMIZER % "dist.get_rank() // self.shards * self.shards + index % self.shards"}),
    good("a group of all ranks, for another backend", {
        "train.py": (_LEADER % ('dist.new_group(backend="gloo")', "0")).replace(
            "from groups import make_groups\n\n", "")}),
    good("the index has an argument of its own", {
        "groups.py": _GROUPS, "train.py": _LEADER % ("make_groups(4)", "group_src=0")}),
    good("one process", {"groups.py": _GROUPS, "train.py": _LEADER % ("make_groups(4)", "0")}, world_size=1),
)  # fmt: skip
