"""Rank 0 chooses the best model by its own share of the evaluation data.

**What.** Each rank evaluates its share of a loader (a `DistributedSampler`, what accelerate prepared, or a data set
that keeps `rows[rank::world_size]`), nothing puts the numbers together, and rank 0 alone compares its own with the best
so far: `if rank == 0 and accuracy > best:` saves the model.

**Why it hurts.** The number is that of one share, on eight GPUs of an eighth of the data. It is noisier than that of
the whole set, it changes with the number of GPUs, and the checkpoint that is kept as the best is the best of the share
of rank 0. Nothing fails.

**Fix.** Sum what is counted over the ranks before the comparison: `dist.all_reduce(counts)`, or
`accelerator.gather_for_metrics(...)`.

**When it stays quiet.** The number was reduced or gathered; every rank evaluates the whole set; a value that nobody can
read; the comparison decides about no file; one process.

**Evidence.** Two gloo ranks, torch 2.13: the shares of a `DistributedSampler` have other losses, and rank 0 keeps
another epoch than the one with the lowest loss of all data; reduced, it keeps that one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.python.source import Module
from dslint.python.varies import DATA, LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.dividedloaders import divided_loaders
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL674",
    name="best-model-of-one-share",
    kind="script",
    severity=Severity.WARNING,
    summary="rank 0 chooses the best model by its own share of the evaluation data",
    markers=(r"DistributedDataParallel|DDP|deepspeed|accelerat|FullyShardedDataParallel|fully_shard|FSDP", r"[<>]"),
    references=("https://github.com/pytorch/pytorch/issues/77562",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each comparison of a number of one share by which rank 0 saves."""
    if run.context.is_one_process or not run.has("wraps-model", "prepares", "makes-engine"):
        return
    if any("metric" in found.event.tags for found in run.occurrences("collective")):
        return  # a metric of a library puts together what the ranks have
    divided = divided_loaders(run)
    is_all = all(id(found.event.node) in divided for found in run.happenings("makes-loader"))
    seen: set[int] = set()
    for found in run.happenings("saves", "state-dict"):
        is_of_main = found.event.lanes == run.machine.worlds.main and not found.event.may
        test = _decides(run, found, divided, is_all) if divided and is_of_main else None
        if test is None or id(test.node) in seen:
            continue
        seen.add(id(test.node))
        yield _finding(run, test, found.event, divided)


def _decides(run: RunQuery, found: Happening, divided: dict[int, Event], is_all: bool) -> Alt | None:
    """Return the comparison of a number of the own share that decides whether something is saved.

    Where nobody knows from which loader the number comes, all of them must give shares.
    """
    for node in reversed(found.around):
        if not isinstance(node, Alt) or node.test is None or not node.varies & DATA or node.varies & LOST:
            continue
        place = _made_by(run, node)
        if (id(place[1]) in divided if place is not None else is_all) and _compares(node):
            return node
    return None


def _made_by(run: RunQuery, alt: Alt) -> tuple[Module, ast.AST] | None:
    """Return the call that makes the number differ; `None` where the test itself does, which keeps the best one."""
    place = run.machine.origin(alt.test) if alt.test is not None else None
    if place is not None and isinstance(place[1], ast.If | ast.IfExp) and _asked(alt) in ast.walk(place[1].test):
        return None
    return place


def _compares(alt: Alt) -> bool:
    asked = _asked(alt)
    operators = [op for node in ast.walk(asked) if isinstance(node, ast.Compare) for op in node.ops]
    return isinstance(asked, ast.Name) or any(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in operators)


def _asked(alt: Alt) -> ast.AST:
    return alt.asks if alt.asks is not None else getattr(alt.node, "test", None) or alt.node


def _finding(run: RunQuery, test: Alt, saves: Event, divided: dict[int, Event]) -> Finding:
    asked = _asked(test)
    place = _made_by(run, test)
    made = divided[id(place[1])] if place is not None else list(divided.values())[-1]
    return run.finding(
        META,
        test.module,
        asked,
        f"`{run.text(test.module, asked, 40)}` compares a number of one share of the data: rank 0 judges by its"
        " own share",
        hint="Reduce what is counted over all ranks before it is compared",
        related=(
            run.location(made.module, made.node, "gives each rank its share"),
            run.location(saves.module, saves.node, "saved by it"),
        ),
        varies=test.varies & ~RANKED,
    )


_HEAD = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@torch.no_grad()
def evaluate(model, loader):
    right = count = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
        count += len(y)
%s
    return right / count


def main(net, train, val):
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(train, 8, sampler=DistributedSampler(train))
    val_loader = DataLoader(val, 8%s)
    best = 0.0
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        accuracy = evaluate(model, val_loader)
        if dist.get_rank() == 0%s
                best = accuracy
                torch.save(net.state_dict(), "best.pt")


main(torch.load("net.pt"), torch.load("train.pt"), torch.load("val.pt"))
"""
_SHARE = ", sampler=DistributedSampler(val, shuffle=False)"
_REDUCED = """\
    counts = torch.tensor([right, count])
    dist.all_reduce(counts)
    right, count = counts.tolist()"""
_THEN, _AND = ":\n            if accuracy > best:", " and accuracy > best:\n            if epoch:"
_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


def main(train, val):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    loader, val_loader = DataLoader(train, 8, shuffle=True), DataLoader(val, 8)
    model, optimizer, loader, val_loader = accelerator.prepare(model, optimizer, loader, val_loader)
    best = float("inf")
    for epoch in range(3):
        for batch in loader:
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        losses = []
        for batch in val_loader:
            with torch.no_grad():
                loss = model(**batch).loss
            losses.append(%s)
        mean = torch.stack(losses).mean().item()
        if accelerator.is_main_process and mean < best:
            best = mean
            accelerator.unwrap_model(model).save_pretrained("best")


main(torch.load("train.pt"), torch.load("val.pt"))
"""
_ROWS = """

class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, rank, world):
        self.rows = %s

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]

"""


def _dealt(cut: str) -> str:
    """Return the script with a data set that cuts its own part of the rows."""
    script = (_HEAD % ("", "", _THEN)).replace("DataLoader(val, 8", "DataLoader(Rows(val, RANK), 8")
    return script.replace("\n\n@torch", _ROWS % cut + "\n@torch").replace(
        "RANK", "dist.get_rank(), dist.get_world_size()"
    )


_SAMPLER = """

class Stride(torch.utils.data.Sampler):
    def __init__(self, length, rank, world):
        self.length, self.rank, self.world = length, rank, world
        self.own = range(rank, length, world)

    def __iter__(self):
        return iter(%s)

"""
_RANGE = "range(dist.get_rank(), len(val), dist.get_world_size())"


def _stride(gives: str) -> str:
    """Return the script with a sampler that gives every so many places."""
    script = _HEAD % ("", ", sampler=Stride(len(val), dist.get_rank(), dist.get_world_size())", _THEN)
    return script.replace("\n\n@torch", _SAMPLER % gives + "\n@torch")


def _subset(places: str) -> str:
    return (_HEAD % ("", "", _THEN)).replace(
        "DataLoader(val, 8", f"DataLoader(torch.utils.data.Subset(val, {places}), 8"
    )


_METRIC = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
%s


@torch.no_grad()
def evaluate(model, loader):
    metric = %s
    for x, y in loader:
        metric.%s
    return %s


def main(net, train, val):
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(train, 8, sampler=DistributedSampler(train))
    val_loader = DataLoader(val, 8, sampler=DistributedSampler(val, shuffle=False))
    best = 0.0
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        result = {"score": evaluate(model, val_loader)}
        if dist.get_rank() == 0:
            if result["score"] > best:
                best = result["score"]
                torch.save(net.state_dict(), "best.pt")


main(torch.load("net.pt"), torch.load("train.pt"), torch.load("val.pt"))
"""
_TORCHEVAL = "from torcheval.metrics import MulticlassAccuracy\nfrom torcheval.metrics.toolkit import sync_and_compute"
_OF_ALL = 'sync_and_compute(metric, recipient_rank="all").item()'
_EVALUATE = ("import evaluate as hf", 'hf.load("accuracy")', "add_batch(predictions=model(x).argmax(1), references=y)")

EXAMPLES = (
    bad("a test inside of the other", {"train.py": _HEAD % ("", _SHARE, _THEN)}, "train.py:33 warning"),
    bad("one test", {"train.py": _HEAD % ("", _SHARE, _AND)}, "train.py:32 warning"),
    bad("with accelerate", {"train.py": _ACCELERATE % "loss"}, "train.py:25 warning"),
    bad("a data set that keeps the rows of its rank", {"train.py": _dealt("rows[rank::world]")}, "train.py:44 warning"),
    bad(
        "a data set that keeps its block",
        {"train.py": _dealt("rows[rank * 100 // world : (rank + 1) * 100 // world]")},
        "train.py:44 warning",
    ),
    bad("a sampler that keeps its range", {"train.py": _stride("self.own")}, "train.py:42 warning"),
    bad(
        "a sampler that makes it anew",
        {"train.py": _stride("range(self.rank, self.length, self.world)")},
        "train.py:42",
    ),
    good("a sampler that gives all", {"train.py": _stride("range(self.length)").replace("self.own = range", "print")}),
    bad("a subset of its range", {"train.py": _subset(_RANGE)}, "train.py:33 warning"),
    bad(
        "a subset of a list",
        {"train.py": _subset("places").replace("    val_loader", f"    places = list({_RANGE})\n    val_loader", 1)},
        "train.py:34 warning",
    ),
    bad(
        "a metric of torcheval",
        {"train.py": _METRIC % (_TORCHEVAL, "MulticlassAccuracy()", "update(model(x), y)", "metric.compute().item()")},
        "train.py:33 warning",
    ),
    good("synchronized", {"train.py": _METRIC % (_TORCHEVAL, "MulticlassAccuracy()", "update(model(x), y)", _OF_ALL)}),
    bad("a metric of evaluate", {"train.py": _METRIC % (*_EVALUATE, 'metric.compute()["accuracy"]')}, "train.py:32"),
    good(
        "a metric that gathers itself",
        {
            "train.py": _METRIC
            % (
                "from torchmetrics import Accuracy",
                'Accuracy(task="multiclass", num_classes=9)',
                "update(model(x), y)",
                "metric.compute()",
            )
        },
    ),
    good("a data set that knows its rank and keeps all", {"train.py": _dealt("[(row, rank) for row in rows]")}),
    good("reduced", {"train.py": _HEAD % (_REDUCED, _SHARE, _THEN)}),
    good("every rank evaluates all", {"train.py": _HEAD % ("", "", _THEN)}),
    good("gathered", {"train.py": _ACCELERATE % "accelerator.gather_for_metrics(loss)"}),
)
