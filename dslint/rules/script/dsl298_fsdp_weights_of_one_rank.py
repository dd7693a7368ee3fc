"""FSDP divides weights that only one rank has loaded, or that each rank has drawn for itself.

**What.** Rank 0 alone loads a checkpoint into the model, and every rank wraps its own copy in
`FullyShardedDataParallel` without `sync_module_states=True`. Or the model is made after `torch.manual_seed(seed +
rank)`, so that each rank draws first weights of its own, and `fully_shard` or FSDP divides it.

**Why it hurts.** FSDP takes each shard from the copy of the rank that keeps it. What is trained is the loaded shard of
rank 0 between the random shards of all others, or shards of as many different models as there are ranks; no error
comes. DDP, which sends the weights of rank 0, would hide this.

**Fix.** `FSDP(model, sync_module_states=True)`, with the model on a GPU or with `device_id`; or load on every rank; or
seed all ranks alike until the model is made, and by rank afterwards.

**When it stays quiet.** The other ranks load, too; the weights are broadcast in between; `sync_module_states` is given
and may be true; `from_pretrained` and the like on every rank; weights that are loaded later.

**Evidence.** Two gloo ranks, torch 2.13: 32 of 64 gathered weights are those that rank 0 has loaded; where every rank
loads, all are. After a seed of its own on each rank, half of the gathered weights are those of rank 1's model.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Seq, events
from dslint.python.values import Instance, Value
from dslint.python.varies import RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL298",
    name="fsdp-weights-of-one-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="FSDP divides weights that only one rank has loaded, or that each has drawn for itself",
    markers=(r"torch|FSDP|init_process_group",),
    references=("https://pytorch.org/docs/stable/fsdp.html",),
    depends_on_run=True,
)


_FULLY_SHARD = "torch.distributed.fsdp.fully_shard"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of some ranks into a model that FSDP divides as it is."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for wrap in events(tree):
            if not _divides(run, wrap) or id(wrap.node) in seen:
                continue
            load = _lone_load(run, tree, wrap)
            if load is not None:
                seen.add(id(wrap.node))
                yield _finding(run, wrap, load)
            elif wrap.drawn and not _is_filled(tree, wrap):
                seen.add(id(wrap.node))
                yield _of_own_seed(run, tree, wrap)


def _divides(run: RunQuery, event: Event) -> bool:
    made = event.result.single if event.result is not None and "wraps-model" in event.tags else None
    kinds = (made.cls,) if isinstance(made, Instance) and isinstance(made.cls, str) else ()
    is_fsdp = event.api == _FULLY_SHARD or any(run.machine.libraries.is_class(kind, "fsdp") for kind in kinds)
    sync = event.arguments.get("sync_module_states")
    return is_fsdp and not event.open and (sync is None or sync.constants == (False,))


def _lone_load(run: RunQuery, tree: Seq, wrap: Event) -> Event | None:
    """Return the load of some ranks, where no other ranks load and nothing is sent before the model is wrapped."""
    full = run.machine.worlds.full
    model = wrap.modules | {atom for name in ("module",) for atom in instances(wrap.arguments.get(name))}
    found: Event | None = None
    covered = 0
    for event in events(tree):
        if event is wrap:
            break
        if event.tags & {"loads-state-dict", "loads"} and _fills(event, model):
            covered |= event.lanes
            found = found or event
        elif found is not None and "collective" in event.tags and ("broadcast" in event.api or "scatter" in event.api):
            return None
    is_alone = found is not None and covered and covered & full != full and wrap.lanes == full
    return found if is_alone else None


def _fills(event: Event, model: frozenset[Instance] | set[Instance]) -> bool:
    """State goes into the model or a part of it, or the model itself is loaded."""
    target: Value | None = event.receiver if "loads-state-dict" in event.tags else event.result
    return bool(set(instances(target)) & model)


def _is_filled(tree: Seq, wrap: Event) -> bool:
    """Return whether anything is loaded or sent that may take the place of the first weights."""
    return any(
        "loads-state-dict" in e.tags
        or ("loads" in e.tags and _fills(e, wrap.modules))
        or ("collective" in e.tags and "broadcast" in e.api)
        for e in events(tree)
    )


def _of_own_seed(run: RunQuery, tree: Seq, wrap: Event) -> Finding:
    seeds = [
        e for e in events(tree) if "seeds" in e.tags and any(varies & RANKED for varies, *_ in e.snapshot.values())
    ]
    return run.finding(
        META,
        wrap.module,
        wrap.node,
        "Each rank draws its own initial weights, and FSDP divides each: the shards belong to different models",
        hint="Seed all ranks alike until the model is made, or pass `sync_module_states=True` to FSDP",
        related=tuple(run.location(e.module, e.node, "each rank seeds itself here") for e in seeds[:1]),
    )


def _finding(run: RunQuery, wrap: Event, load: Event) -> Finding:
    return run.finding(
        META,
        load.module,
        load.node,
        "Only some ranks load these weights, and FSDP divides what each rank has: the other shards stay random",
        hint="Pass `sync_module_states=True` to FSDP, or load on every rank",
        related=(run.location(wrap.module, wrap.node, "divides the model"),),
    )


_TRAIN = """\
import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import build


def main(loader):
    dist.init_process_group("nccl")
    model = build("weights.pt", dist.get_rank())
%s    model = FSDP(model, device_id=torch.cuda.current_device()%s)
    for batch in loader:
        model(batch).mean().backward()
"""
_SEEDED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_node_local_rank())
torch.manual_seed(42 + %s)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)).cuda()
fully_shard(model)
torch.manual_seed(42 + dist.get_rank())
"""
_MODEL = """\
import torch
from torch import nn


def build(path, rank):
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    if rank == 0:
        net.load_state_dict(torch.load(path, map_location="cpu"))
%s    return net
"""
_OTHERS = """\
    else:
        net.load_state_dict(torch.load(path, map_location="cpu", mmap=True))
"""
_SENT = """\
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
"""
_UNKNOWN = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from zoo import make_backbone


class Setup:
    def __init__(self, args):
        self.main = dist.get_rank() == 0
        self.net = make_backbone(args.width)
        if self.main:
            self.restore(args.path)

    def restore(self, path):
        self.net.load_state_dict(torch.load(path, map_location="cpu"))

    def wrapped(self):
        return FullyShardedDataParallel(self.net)


def main(args):
    dist.init_process_group("nccl")
    return Setup(args).wrapped()
"""
_HF = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoConfig, AutoModelForCausalLM


def main(name):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        model = AutoModelForCausalLM.from_pretrained(name)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))
    return FSDP(model, device_id=torch.cuda.current_device()%s)
"""

EXAMPLES = (
    bad("a factory of another file", {"train.py": _TRAIN % ("", ""), "model.py": _MODEL % ""}, "model.py:8 warning"),
    bad("first weights of a seed of its own", {"train.py": _SEEDED % "dist.get_rank()"}, at="train.py:10 warning"),
    good("one seed until the model is made", {"train.py": _SEEDED % "0"}),
    bad("a method and a model that nobody knows", {"train.py": _UNKNOWN}, at="train.py:15 warning"),
    bad("loaded on rank 0, made on the others", {"train.py": _HF % ""}, at="train.py:10 warning"),
    good("synchronised", {"train.py": _TRAIN % ("", ", sync_module_states=True"), "model.py": _MODEL % ""}),
    good("every rank loads", {"train.py": _TRAIN % ("", ""), "model.py": _MODEL % _OTHERS}),
    good("broadcast", {"train.py": _TRAIN % (_SENT, ""), "model.py": _MODEL % ""}),
    good("made on the others, and sent", {"train.py": _HF % ", sync_module_states=True"}),
)
