"""**What.** The ranks do not make the same process groups: the list of members passed to `new_group` is computed from
the rank of the process or chosen by a test of it, or `new_group` stands in a loop whose length is.

**Why it hurts.** Every rank must make every group, in the same order and with the same members, also the groups of
which it is no member. Otherwise a rank waits in `new_group` for members that make another group under the same name,
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
waits for nobody; a rank within a subgroup (`tp_rank`); loop variables and parameters that are called `rank`;
`new_group` behind a rank test, which is DSL201, and a loop over one part a rank, which is DSL207.

**Evidence.** Four gloo ranks, torch 2.13: `new_group([rank, (rank + 1) % 4])`, and `new_group()` in
`for _ in range(rank + 1)`, hang; all groups on all ranks pass. Controls: `[rank]` passes, and pairs with
`use_local_synchronization=True` do. Groups that do not overlap get through by luck in some runs over gloo.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import Flat, call_name, expression_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL226",
    name="group-members-per-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="The ranks make other process groups, since the members or their number come from the rank",
    markers=(r"new_group\b|new_subgroups_by_enumeration\b", r"rank|RANK", r"distributed|deepspeed"),
    references=("https://pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",),
)
_MAKERS = frozenset(
    f"{root}.{name}"
    for root in ("torch.distributed", "torch.distributed.distributed_c10d", "deepspeed.comm")
    for name in ("new_group", "new_subgroups_by_enumeration")
)
_MAX_STEPS = 5
# Names and variables of the environment that may be the rank of the process (``ranks`` is a list of others).
_RANK = re.compile(r"(?i)rank(?:_id)?$|process_index$|procid$|localid$")


def precheck(tree: ast.Module) -> bool:
    """The members of a group, or the loop around it, may come from the rank."""
    nodes = flat(tree)
    makers = [c for c in nodes.nodes(ast.Call) if call_name(c) in ("new_group", "new_subgroups_by_enumeration")]
    if not makers:
        return False
    ranks = _rank_names(nodes)
    values = [value for c in makers for value in (*c.args[:1], *(k.value for k in c.keywords))]
    loops = (loop for loop in nodes.nodes(ast.For) if any(c in makers for c in ast.walk(loop)))
    return any(_mentions(value, ranks) for value in (*values, *(loop.iter for loop in loops)))


def _rank_names(nodes: Flat) -> set[str]:
    """The variables that may hold something computed from the rank."""
    given = [(_words(n.value), {expression_name(t) for t in _targets(n)}) for n in nodes.nodes(ast.Assign)]
    typed = (n for n in nodes.nodes(ast.AnnAssign) if n.value is not None)
    given += [(_words(n.value), {expression_name(n.target)}) for n in typed]  # type: ignore[arg-type]
    for at, test in zip(nodes.places(ast.If), nodes.nodes(ast.If), strict=True):
        inside = nodes.order[at : nodes.ends[at]]
        chosen = {expression_name(t) for n in inside if isinstance(n, ast.Assign) for t in _targets(n)}
        chosen |= {expression_name(n.target) for n in inside if isinstance(n, ast.AnnAssign)}
        if chosen:
            given.append((_words(test.test), chosen))
    found: set[str] = set()
    while True:
        fresh = {name for words, names in given if words is None or words & found for name in names}
        fresh -= found | {""}
        if not fresh:
            return found
        found |= fresh


def _targets(node: ast.Assign) -> Iterator[ast.expr]:
    for target in node.targets:
        yield from target.elts if isinstance(target, ast.Tuple) else (target,)


def _mentions(value: ast.expr, names: set[str]) -> bool:
    words = _words(value)
    return words is None or bool(words & names)


def _words(value: ast.expr) -> set[str] | None:
    """The names in an expression; ``None`` when one of them, or a text, speaks of ranks."""
    found = set()
    for node in ast.walk(value):
        word = expression_name(node) if isinstance(node, ast.expr) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value
        elif word:
            found.add(word)
        if _RANK.search(word):
            return None
    return found


class Check(ScriptCheck):
    """Looks at each group that all ranks make."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the members or the number of groups certainly come from the rank."""
        if self.ctx.qualified_name(node.func) not in _MAKERS or self.ctx.has_unpacked_arguments(node):
            return
        if self.ctx.argument(node, "use_local_synchronization", 4) is not None or self.ctx.guard(node) is not None:
            return
        members = self.ctx.argument(node, "ranks", 0) or self.ctx.argument(node, "ranks_per_subgroup_list", 0)
        rank = self._rank_in(members, _MAX_STEPS) if members is not None and not self._is_alone(members) else None
        if members is not None and rank is not None:
            self._report(node, members, rank, "the members are computed from the rank", "members")
            return
        chosen = self._chosen(members) if members is not None else None
        if chosen is not None:
            self._report(node, members or node, chosen, "a test of the rank chooses the members", "members")
            return
        for loop in self.ctx.loops(node):
            rank = self._rank_in(loop.iter, _MAX_STEPS) if isinstance(loop, cst.For) and _counts(loop) else None
            if rank is not None and not any(u.call is node for u in self.ctx.uneven_loops.all()):
                self._report(node, node, rank, "the loop around it depends on the rank", "count")
                return

    def _chosen(self, members: cst.BaseExpression) -> cst.CSTNode | None:
        """The rank test whose arms write out other members: ``ranks = [0, 1] if rank < 2 else [2, 3]``."""
        value = self.ctx.names.single_value(members) or members
        if isinstance(value, cst.IfExp):
            return value.test if self._parts(value.test) and _differ([value.body, value.orelse]) else None
        found = self.ctx.objects.reached(members) if isinstance(members, cst.Name) else []
        values = [b.value for b in found if b.kind == "assign" and b.value is not None]
        if len(values) != len(found) or not _differ(values):
            return None
        guards = [g for g in (self.ctx.guard(b.node) for b in found) if g is not None and g.kind == "test"]
        # Every list stands in an arm of one rank test.
        around = [g for g in guards if all(self.ctx.tree.contains(g.owner, b.node) for b in found)]
        return around[0].test if around else None

    def _parts(self, test: cst.BaseExpression) -> bool:
        return any(ranks.is_partial for ranks in self.ctx.guards.branches(test))

    def _is_alone(self, members: cst.BaseExpression) -> bool:
        """`[rank]`: a group that waits for nobody."""
        value = self.ctx.names.single_value(members) or members
        return isinstance(value, cst.List | cst.Tuple) and len(value.elements) == 1

    def _rank_in(self, value: cst.BaseExpression, steps: int) -> cst.BaseExpression | None:
        """The rank of the process in an expression, looked for behind variables too."""
        for node in self.ctx.descendants(value):
            if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
                continue
            if isinstance(node, cst.Name) and not self.ctx.tree.is_variable(node):
                continue  # ``ranks`` of ``args.ranks``
            inner = self.ctx.names.single_value(node) if isinstance(node, cst.Name) and steps else None
            other = isinstance(node, cst.Name) and self._is_other(node)
            if not other and self.ctx.guards.rank_values.is_rank(node):
                return node
            found = self._rank_in(inner, steps - 1) if inner is not None and not self._is_gathered(inner) else None
            if found is not None:
                return found
        return None

    def _is_gathered(self, value: cst.BaseExpression) -> bool:
        """What another function makes of the rank may be the same everywhere."""
        return (
            isinstance(value, cst.Call)
            and not self.ctx.guards.rank_values.is_rank(value)
            and self.ctx.called(value) not in ("list", "range", "sorted", "tuple", "set", "int", "max", "min")
        )

    def _is_other(self, node: cst.Name) -> bool:
        """The name cannot hold this process's rank: a loop or a parameter gives it its value, or a list does."""
        parent = self.ctx.parent(node)
        if isinstance(parent, cst.Attribute) or (isinstance(parent, cst.Arg) and parent.keyword is node):
            return True
        found = self.ctx.names.bindings(node.value, node)
        many = (cst.List, cst.ListComp, cst.Tuple, cst.Dict, cst.Set)
        return not found or any(
            b.kind not in ("assign", "unpack", "import") or (b.kind == "assign" and isinstance(b.value, many))
            for b in found
        )

    def _report(self, node: cst.Call, place: cst.CSTNode, rank: cst.CSTNode, why: str, members: str) -> None:
        name = self.ctx.text(node.func)
        self.report(
            place,
            f"every rank must make the same groups in the same order, but {why}: ranks wait in `{name}` for members"
            " that make another group",
            hint="Make all groups on all ranks and keep the one that holds this rank, or pass"
            " `use_local_synchronization=True`",
            related=(self.ctx.location(rank, "the rank"),) if rank is not place else (),
            facts={"members": members},
        )


def _differ(values: list[cst.BaseExpression]) -> bool:
    """Lists of numbers that are not the same: nothing else is certain to name other ranks."""
    written = [_numbers(value) for value in values]
    return None not in written and len(set(written)) > 1


def _numbers(value: cst.BaseExpression) -> tuple[str, ...] | None:
    if not isinstance(value, cst.List | cst.Tuple) or len(value.elements) < 2:
        return None
    found = [e.value.value for e in value.elements if isinstance(e.value, cst.Integer)]
    return tuple(sorted(found)) if len(found) == len(value.elements) else None


def _counts(loop: cst.For) -> bool:
    return isinstance(loop.iter, cst.Call) and last_name(loop.iter.func) == "range"


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
