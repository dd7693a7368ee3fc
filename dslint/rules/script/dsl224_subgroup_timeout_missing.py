"""**What.** The default process group has a timeout of its own, and a subgroup is made without one.

**Why it hurts.** `new_group`, `new_subgroups` (which FSDP calls for `HYBRID_SHARD`) and the groups of a device mesh do
not take over the timeout of the default group: they wait 10 minutes with NCCL and 30 with gloo. Where the default group
may wait for hours (data preparation on rank 0, long generation), a collective on the subgroup still ends the job; where
the timeout was shortened to find hangs early, one on the subgroup is found late.

**Fix.** `dist.new_group(ranks, timeout=timeout)` with the same value. A device mesh takes no timeout; make its groups
before with `new_group` and `DeviceMesh.from_group`, or let no rank be late there.

A group of all ranks on which a barrier of the same file waits is there for what takes long: that is a warning.

**When it stays quiet.** No call in the file gives the default group a timeout; the subgroup gets one; a mesh of one
dimension, which takes the default group itself when it holds all ranks. One finding a file.

**Evidence.** Two gloo ranks, torch 2.13: with a default group of 7,200 s (60 s) `new_group`, `new_subgroups` and the
second dimension of a device mesh wait 1,800 s; a mesh of one dimension waits 7,200 s.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.timeouts import GROUP_CREATORS, timedelta_seconds
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL224",
    name="subgroup-timeout-missing",
    kind="script",
    severity=Severity.INFO,
    summary="A subgroup does not have the timeout of the default process group",
    markers=(
        r"init_(?:process_group|distributed)\b",
        r"new_group\b|new_subgroups|init_device_mesh\b|HYBRID_SHARD",
        r"timeout|timedelta",
    ),
    references=(
        "https://github.com/pytorch/pytorch/issues/135352",
        "https://github.com/pytorch/pytorch/issues/121676",
    ),
)
# The position of ``timeout``; a device mesh takes none.
_MAKERS = {
    "torch.distributed.new_group": 1,
    "torch.distributed.new_subgroups": 2,
    "torch.distributed.new_subgroups_by_enumeration": 1,
    "torch.distributed.init_device_mesh": None,
    "torch.distributed.device_mesh.init_device_mesh": None,
}
_NAMES = frozenset(name.rpartition(".")[2] for name in _MAKERS)
_FSDP = "FullyShardedDataParallel"
# A barrier on a group.
_BARRIER = re.compile(r"\bbarrier\(\s*(?:group\s*=\s*)?(?!None\b)[\w.]*(?:group|pg)[\w.]*\s*[,)]")
_HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})


def precheck(tree: ast.Module) -> bool:
    """A subgroup is made without a timeout, and the default group with one."""
    calls = flat(tree).nodes(ast.Call)
    made = (c for c in calls if call_name(c) in ("init_process_group", "init_distributed"))
    if not any(len(c.args) > 2 or any(k.arg == "timeout" for k in c.keywords) for c in made):
        return False
    if any(n.attr in _HYBRID for n in flat(tree).nodes(ast.Attribute)):
        return True
    return any(call_name(c) in _NAMES and not any(k.arg in (None, "timeout") for k in c.keywords) for c in calls)


_HINTS = {
    "init_device_mesh": "Let no rank be late for this mesh, or make its groups with `new_group(timeout=...)`",
    _FSDP: "Make both groups with `new_group(timeout=...)` and pass them as `process_group=`",
}


class Check(ScriptCheck):
    """Looks at the first subgroup without a timeout."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the file gives the default group a timeout."""
        name = self.ctx.qualified_name(node.func) or ""
        maker = name.rpartition(".")[2]
        if self.findings or self.ctx.has_unpacked_arguments(node):
            return
        if not (self._is_hybrid(node) if maker == _FSDP else self._lacks_timeout(node, name)):
            return
        given = self._default_timeout()
        if given is None:
            return
        text = self.ctx.text(given)
        self.report(
            node,
            f"`{self.ctx.text(node.func)}` does not take over the timeout of the default group (`{text}`):"
            f" {'its groups wait' if maker == _FSDP else 'this group waits'} 10 minutes with NCCL and 30 with gloo",
            hint=_HINTS.get(maker, f"Pass `timeout={text}` here as well"),
            related=(self.ctx.location(given, "the timeout of the default group"),),
            severity=Severity.WARNING if self._is_waited_on(node) else None,
            facts={
                "maker": "new_subgroups" if maker.startswith("new_subgroups") or maker == _FSDP else maker,
                "timeout": timedelta_seconds(self.ctx.names, self.ctx.constants, given),
            },
        )

    def _is_waited_on(self, node: cst.Call) -> bool:
        """The group of all ranks is there to wait on, for what the timeout was given: it holds a barrier."""
        name = self.ctx.qualified_name(node.func) or ""
        if not name.endswith(".new_group") or self.ctx.argument(node, "ranks", 0) is not None:
            return False
        return bool(_BARRIER.search(self.ctx.doc.source.text))

    def _lacks_timeout(self, node: cst.Call, name: str) -> bool:
        if name not in _MAKERS or self.ctx.argument(node, "timeout", _MAKERS[name]) is not None:
            return False
        return not name.endswith("init_device_mesh") or self._has_several_dimensions(node)

    def _is_hybrid(self, node: cst.Call) -> bool:
        """FSDP makes the groups of `HYBRID_SHARD` itself, with `new_subgroups`, unless it gets them."""
        strategy = self.ctx.argument(node, "sharding_strategy", 2)
        given = [self.ctx.argument(node, "process_group", 1), self.ctx.argument(node, "device_mesh", None)]
        return strategy is not None and last_name(strategy) in _HYBRID and given == [None, None]

    def _has_several_dimensions(self, node: cst.Call) -> bool:
        shape = self.ctx.argument(node, "mesh_shape", 1)
        value = (self.ctx.names.single_value(shape) or shape) if shape is not None else None
        return isinstance(value, cst.Tuple | cst.List) and len(value.elements) > 1

    def _default_timeout(self) -> cst.BaseExpression | None:
        """The timeout that the file certainly gives to the default group."""
        found = []
        for node in self.ctx.tree.order:
            name = self.ctx.qualified_name(node.func) if isinstance(node, cst.Call) else None
            if isinstance(node, cst.Call) and name in GROUP_CREATORS:
                found.append(self.ctx.argument(node, "timeout", GROUP_CREATORS[name]))
        values = [v for v in found if v is not None and last_name(v) != "None"]
        return values[0] if values and len(values) == len(found) else None


_HEAD = """\
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

"""

EXAMPLES = (
    bad(
        "a group for one node",
        {
            "train.py": _HEAD + "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            "group = dist.new_group([0, 1], backend='nccl')\n"
        },
        at="train.py:7 info",
    ),
    bad(
        "a mesh of two dimensions",
        {
            "train.py": _HEAD + "dist.init_process_group('nccl', None, timedelta(hours=2))\n"
            "mesh = init_device_mesh('cuda', (2, 4), mesh_dim_names=('dp', 'tp'))\n"
        },
        at="train.py:7 info",
    ),
    bad(
        "the groups of hybrid sharding",
        {
            "train.py": _HEAD
            + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy\n\n"
            "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            "model = FSDP(make_model(), sharding_strategy=ShardingStrategy.HYBRID_SHARD)\n"
        },
        at="train.py:9 info",
    ),
    bad(
        "a group of all ranks to wait on",
        {
            "env.py": _HEAD
            + "class Env:\n    def __init__(self, hours):\n"
            + "        dist.init_process_group('nccl', timeout=timedelta(hours=hours))\n"
            + "        self.cpu_group = dist.new_group(backend='gloo')\n\n"
            + "    def wait(self):\n        dist.barrier(group=self.cpu_group)\n"
        },
        at="env.py:9 warning",
    ),
    good(
        "the same timeout",
        {
            "train.py": _HEAD + "timeout = timedelta(hours=2)\ndist.init_process_group('nccl', timeout=timeout)\n"
            "group = dist.new_group([0, 1], timeout=timeout)\n"
        },
    ),
    good(
        "the default everywhere, and a mesh of one dimension",
        {
            "train.py": _HEAD + "dist.init_process_group('nccl', timeout=None)\ngroup = dist.new_group([0, 1])\n",
            "mesh.py": _HEAD + "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            "mesh = init_device_mesh('cuda', (8,))\n",
        },
    ),
)
