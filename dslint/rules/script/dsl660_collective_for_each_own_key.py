"""A collective for each key of a dictionary, whose keys follow from the data of the rank.

**What.** `self.log_dict(losses, sync_dist=True)`, `accelerator.gather(losses)` or `accelerator.reduce(losses)` gets a
dictionary that holds a key only where this rank has seen it in its batch: a task, a class, a kind of box. Or a loop
over such a dictionary runs a collective in each turn, as `reduce_dict` for logging does.

**Why it hurts.** The call makes one collective for each key. A rank with a key more waits for the others until the
process-group timeout. With as many keys, but others, nothing fails: numbers of different names are added up.

**Fix.** Give the dictionary the same keys on all ranks, with 0 and a count of 0 where the rank has seen nothing; or
gather the dictionaries as objects, and join them.

**When it stays quiet.** The keys come from a list that all ranks have, or from an option; `sync_dist` is off; nobody
knows on what the keys depend; the dictionary goes to `gather_object`; a loop over a dictionary that no test in sight
gives a key.

**Evidence.** Two gloo ranks, torch 2.13, accelerate 1.15: `reduce` of a dictionary with a key more on rank 0 leaves
that rank waiting; with one other key each, both ranks return a sum of the two. An `all_reduce` in a loop over the keys
does the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.values import Instance, Value
from dslint.python.varies import DATA, DIVERGENT, LOST, RANKED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL660",
    name="collective-for-each-own-key",
    kind="script",
    severity=Severity.WARNING,
    summary="a collective for each key of a dictionary whose keys differ between the ranks",
    markers=(
        r"log_dict|gather|reduce\w*\(|broadcast|pad_across_processes",
        r"lightning|accelerat|distributed|mmengine",
    ),
    references=("https://github.com/Lightning-AI/pytorch-lightning/issues/19106",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such call whose dictionary has another length, or other keys, by the data of the rank."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for found in run.happenings("collective", "collective-if sync_dist=True"):
        name = _each(run, found.event) if run.waits.of(found.event) is not None else ""
        value = found.event.arguments.get(name)
        if not name or value is None or found.event.may or id(found.event.node) in seen:
            continue
        shape = found.event.snapshot.get(name, (0, 0))[1]
        if not _is_dictionary(value) or not shape & DIVERGENT or shape & (LOST | UNSURE):
            continue
        seen.add(id(found.event.node))
        yield _finding(run, found.event, name, value, shape)
    yield from _loops(run, seen)


def _loops(run: RunQuery, seen: set[int]) -> Iterator[Finding]:
    """Fire on each loop over such a dictionary that runs a collective in each turn."""
    for _, parting in run.partings:
        loop, place = parting.test, parted.origin(run, parting)
        if not isinstance(loop, Loop) or isinstance(loop.node, ast.While) or place is None or parting.event.may:
            continue
        is_own = parting.varies & DATA and not parting.varies & (LOST | UNSURE | RANKED)
        if not is_own or not _adds_key(place[1]) or id(loop.node) in seen:
            continue
        seen.add(id(loop.node))
        asked = parted.test_node(parting)
        yield run.finding(
            META,
            loop.module,
            asked,
            f"`{parted.called(run, parting)}` runs for each key of `{run.text(loop.module, asked)}`, but keys differ by"
            " rank: ranks with more hang",
            hint="Give the dictionary the same keys on all ranks, with 0 where this rank has seen nothing",
            related=(
                run.location(*parted.place(parting), "needs every rank each time"),
                run.location(*place, "this rank's data decide about a key"),
            ),
            varies=parting.varies,
            origin=place,
            facts={"called": parting.event.api},
        )


def _adds_key(test: ast.AST) -> bool:
    """Return whether a test decides about a key: it writes an item, or leaves a turn in which one is written."""
    if isinstance(test, ast.DictComp):
        return True
    if not isinstance(test, ast.If):
        return False
    inside = [node for statement in (*test.body, *test.orelse) for node in ast.walk(statement)]
    return any(
        (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and not isinstance(node.slice, ast.Slice))
        or isinstance(node, ast.Continue)
        or (isinstance(node, ast.Attribute) and node.attr in ("update", "setdefault"))
        for node in inside
    )


def _each(run: RunQuery, event: Event) -> str:
    """Return the argument for each item of which a call makes one collective."""
    libraries = run.machine.libraries
    owner, _, method = event.api.rpartition(".")
    row = libraries.function(event.api) or libraries.method(owner, method)
    return str(row.extra.get("one_each", "")) if row is not None else ""


def _is_dictionary(value: Value) -> bool:
    return bool(value.atoms) and all(isinstance(a, Instance) and a.cls == "builtins.dict" for a in value.atoms)


def _finding(run: RunQuery, event: Event, name: str, value: Value, shape: int) -> Finding:
    called = run.text(event.module, getattr(event.node, "func", event.node))
    given = event.nodes.get(name, event.node)
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called}` runs a collective for each key, but the keys depend on this rank's data: ranks with more hang",
        hint="Give the dictionary the same keys on all ranks, or gather it as an object",
        related=(
            run.location(event.module, given, "the dictionary"),
            *run.origin(value, "the data of this rank"),
        ),
        varies=shape,
        facts={"called": event.api},
    )


_MODULE = """\
import lightning as L
import torch.nn.functional as F

TASKS = ["depth", "normals"]


class Tasks(L.LightningModule):
    def losses(self, batch):
        output, found = self(batch["x"]), {%s}
        for index, name in enumerate(TASKS):
            rows = batch["task"] == index
            if %s:
                found[name] = F.mse_loss(output[rows, index], batch["y"][rows])
        return found

    def training_step(self, batch, batch_idx):
        return sum(self.losses(batch).values())

    def validation_step(self, batch, batch_idx):
        self.log_dict({f"val/{k}": v for k, v in self.losses(batch).items()}, sync_dist=%s)
"""
_TRAIN = """\
from accelerate import Accelerator
from torch.utils.data import DataLoader

from losses import split


def main(model, data, optimizer):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data))
    for batch in loader:
        parts = split(model(batch["x"]), batch)
        accelerator.backward(sum(parts.values()))
        optimizer.step()
        means = accelerator.%s
        accelerator.print(means)
"""
_SPLIT = """\
def split(output, batch):
    found = {}
    if (batch["kind"] == 1).any():
        found["box"] = output[batch["kind"] == 1].mean()
    found["all"] = output.mean()
    return found
"""
_REDUCED = """\
import torch
import torch.distributed as dist


def reduce_dict(values):
    with torch.no_grad():
%s
"""
_SORTED = """\
        means = {}
        for name in sorted(values):
            value = values[name].detach().clone()
            dist.all_reduce(value)
            means[name] = value / dist.get_world_size()
        return means"""
_ITEMS = """\
        for value in values.values():
            dist.all_reduce(value)
        return values"""
_JOINED = """\
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, list(values))
        zero = torch.zeros((), device="cuda")
        for name in sorted(set().union(*names)):
            dist.all_reduce(values.get(name, zero))"""
_DETECTOR = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from reduced import reduce_dict


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, images, boxes):
        found = self.head(images)
        losses = {"class": found.mean()}
%s
        return losses


def main(data):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_node_local_rank())
    model = DistributedDataParallel(Detector().cuda(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for images, boxes in DataLoader(data, 8, sampler=DistributedSampler(data)):
        losses = model(images.cuda(), boxes.cuda())
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        print(reduce_dict(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(torch.load("data.pt"))
"""
_WITH_BOXES = """\
        if len(boxes) > 0:
            losses["box"] = (found - boxes).abs().mean()"""
_OR_NONE = """\
        box = self.of_boxes(found, boxes)
        if box is not None:
            losses["box"] = box
        return losses

    def of_boxes(self, found, boxes):
        if boxes.shape[0] == 0:
            return %s
        return (found - boxes).abs().mean()

    def class_only(self, losses):"""
_FILTERED = """\
        losses["box"] = (found - boxes).abs().mean() if len(boxes) else None
        losses = {name: loss for name, loss in losses.items() if loss is not None}"""
_BY_UPDATE = """\
        if (boxes > 0).any():
            losses.update(box=(found - boxes).abs().mean())"""
_ALWAYS = """\
        losses["box"] = (found - boxes).abs().sum() / max(len(boxes), 1)"""


def _detector(added: str, reduced: str) -> dict[str, str]:
    return {"train.py": _DETECTOR % added, "reduced.py": _REDUCED % reduced}


EXAMPLES = (
    bad(
        "the losses of the tasks that are in the batch",
        {"module.py": _MODULE % ("", "rows.any()", "True")},
        at="module.py:20 warning",
    ),
    bad(
        "a dictionary of another file, reduced by accelerate",
        {"losses.py": _SPLIT, "train.py": _TRAIN % 'reduce(parts, "mean")'},
        at="train.py:14 warning",
    ),
    bad("reduced key by key, and only a batch with boxes has two", _detector(_WITH_BOXES, _SORTED), "reduced.py:8"),
    bad("without names, and by update", _detector(_BY_UPDATE, _ITEMS), "reduced.py:7"),
    bad("a loss that is None without boxes", _detector(_OR_NONE % "None", _SORTED), "reduced.py:8"),
    bad("what is None is left out", _detector(_FILTERED, _SORTED), "reduced.py:8"),
    good("zero without boxes", _detector(_OR_NONE % "found.sum() * 0", _SORTED)),
    good("both losses in each batch", _detector(_ALWAYS, _SORTED)),
    good("the keys of all ranks, in one order", _detector(_WITH_BOXES, _JOINED)),
    good("every task has its key", {"module.py": _MODULE % ("", "index < 2", "True")}),
    good("nothing is reduced", {"module.py": _MODULE % ("", "rows.any()", "False")}),
    good("one part of it is reduced", {"losses.py": _SPLIT, "train.py": _TRAIN % 'reduce(parts["all"], "mean")'}),
)
