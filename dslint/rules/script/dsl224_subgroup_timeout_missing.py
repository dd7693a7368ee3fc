"""**What.** The default process group has a timeout of its own, and a subgroup is made without one.

**Why it hurts.** `new_group`, `new_subgroups` (which FSDP calls for `HYBRID_SHARD`) and the groups of a device mesh do
not take over the timeout of the default group: they wait 10 minutes with NCCL and 30 with gloo. Where the default group
may wait for hours (data preparation on rank 0, long generation), a collective on the subgroup still ends the job; where
the timeout was shortened to find hangs early, one on the subgroup is found late.

**Fix.** `dist.new_group(ranks, timeout=timeout)` with the same value. A device mesh takes no timeout; make its groups
before with `new_group` and `DeviceMesh.from_group`, or let no rank be late there.

A group of all ranks on which a barrier waits is there for what takes long: that is a warning.

**When it stays quiet.** Nothing gives the default group a timeout, or only some of the calls that make it do; the
subgroup gets one; a mesh of one dimension, which takes the default group itself when it holds all ranks. One finding
a file.

**Evidence.** Two gloo ranks, torch 2.13: with a default group of 7,200 s (60 s) `new_group`, `new_subgroups` and the
second dimension of a device mesh wait 1,800 s; a mesh of one dimension waits 7,200 s.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.durations import seconds_of
from dslint.python.events import Event
from dslint.python.values import Api, Instance, Tuple, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import argument_text, called, is_open, may_be_none, timeout_name, timeout_of
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL224",
    name="subgroup-timeout-missing",
    kind="script",
    severity=Severity.INFO,
    summary="A subgroup does not have the timeout of the default process group",
    markers=(r"distributed|deepspeed|accelerate",),
    references=(
        "https://github.com/pytorch/pytorch/issues/135352",
        "https://github.com/pytorch/pytorch/issues/121676",
    ),
    depends_on_run=True,
)
_HYBRID = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first subgroup of each module that waits otherwise than the default group."""
    given = _default_timeout(run)
    if given is None:
        return
    first: dict[str, tuple[Event, str]] = {}
    for found in run.happenings("makes-group", "wraps-model"):
        event = found.event
        maker = _maker(run, event)
        known = first.get(event.module.path)
        if maker and (known is None or _line(event) < _line(known[0])):
            first[event.module.path] = event, maker
    for event, maker in first.values():
        yield _finding(run, event, maker, given)


def _line(event: Event) -> int:
    return getattr(event.node, "lineno", 0)


def _default_timeout(run: RunQuery) -> Event | None:
    """Return a call that gives the default group its timeout, where all that make it do so."""
    found: list[Event] = []
    for made in run.happenings("default-group", "group-options"):
        tags = made.event.tags
        if "takes-timeout" in tags and "training-arguments" not in tags:
            found.append(made.event)
    given = [(event, timeout_of(run, event)) for event in found]
    stated = [event for event, value in given if value is not None and not may_be_none(value)]
    return stated[0] if stated and len(stated) == len(given) else None


def _maker(run: RunQuery, event: Event) -> str:
    """Return what makes a group without a timeout; empty where nothing does."""
    tags, name = event.tags, event.api.rpartition(".")[2]
    if event.may or is_open(event):
        return ""
    if {"makes-group", "takes-timeout"} <= tags and "collective" not in tags:
        return name if timeout_of(run, event) is None else ""
    if "makes-group" in tags and _is_a(run, event.result, "mesh"):
        return "init_device_mesh" if _has_several_dimensions(event) else ""
    if not _is_a(run, event.result, "fsdp"):
        return ""
    given = [event.arguments.get(name) for name in ("process_group", "device_mesh")]
    strategy = event.arguments.get("sharding_strategy")
    atom = strategy.single if strategy is not None else None
    is_hybrid = isinstance(atom, Api) and atom.path.rpartition(".")[2] in _HYBRID
    return "new_subgroups" if is_hybrid and all(v is None or v.constants == (None,) for v in given) else ""


def _is_a(run: RunQuery, value: Value | None, kind: str) -> bool:
    atom = value.single if value is not None else None
    is_known = isinstance(atom, Instance) and isinstance(atom.cls, str)
    return is_known and run.machine.libraries.is_class(str(getattr(atom, "cls", "")), kind)


def _has_several_dimensions(event: Event) -> bool:
    shape, node = event.arguments.get("mesh_shape"), event.nodes.get("mesh_shape")
    atom = shape.single if shape is not None else None
    if isinstance(atom, Tuple):
        return len(atom.items) > 1
    return isinstance(node, ast.List) and len(node.elts) > 1


def _finding(run: RunQuery, event: Event, maker: str, default: Event) -> Finding:
    timeout = timeout_of(run, default)
    text, place = argument_text(run, default, timeout_name(run, default))
    is_fsdp = "wraps-model" in event.tags
    here = f"timeout={text}" if event.module is default.module else "timeout=..."
    hint = f"Pass `{here}` here as well"
    if is_fsdp:
        hint = "Make both groups with `new_group(timeout=...)` and pass them as `process_group=`"
    elif maker == "init_device_mesh":
        hint = "Let no rank be late for this mesh, or make its groups with `new_group(timeout=...)`"
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called(run, event)}` does not inherit the default group's timeout (`{text}`):"
        f" {'its groups wait' if is_fsdp else 'it waits'} 10 minutes (NCCL) or 30 (gloo)",
        hint=hint,
        related=(run.location(default.module, place, "the timeout of the default group"),),
        severity=Severity.WARNING if _is_waited_on(run, event) else None,
        facts={
            "maker": "new_subgroups" if maker.startswith("new_subgroups") else maker,
            "timeout": seconds_of(timeout),
        },
    )


def _is_waited_on(run: RunQuery, event: Event) -> bool:
    """Return whether a group of all ranks is there to wait on, for what the timeout was given: it holds a barrier."""
    ranks = event.arguments.get("ranks")
    if not event.api.endswith(".new_group") or (ranks is not None and ranks.constants != (None,)):
        return False
    made = set(instances(event.result))
    return any(made & set(instances(found.event.arguments.get("group"))) for found in run.happenings("barrier"))


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
    bad(
        "a helper of another file, and a barrier on its group",
        {
            "train.py": _HEAD + "from parallel import Groups, start\n\n"
            "start('nccl', timeout=timedelta(hours=3))\ngroups = Groups()\ngroups.wait()\ndist.barrier()\n",
            "parallel.py": "import torch.distributed as dist\n\n\ndef start(backend, **options):\n"
            "    dist.init_process_group(backend, **options)\n\n\nclass Groups:\n    def __init__(self):\n"
            "        self.all = dist.new_group(backend='gloo')\n\n"
            "    def wait(self):\n        dist.barrier(self.all)\n",
        },
        at="parallel.py:10 warning",
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
