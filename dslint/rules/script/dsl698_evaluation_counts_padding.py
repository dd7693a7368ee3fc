"""A `DistributedSampler` repeats samples to fill the last round, and an evaluation counts them twice.

**What.** The loader of an evaluation has a `DistributedSampler`. Each rank adds up hits, losses and the number of
samples of its share, the sums are added up over the ranks with `all_reduce`, and a metric is their quotient. Or it
collects the results of its share in a list, and the lists of the ranks are put together with `all_gather_object`.

So does `trainer.test(...)` of Lightning on several devices: it gives the loader such a sampler itself.

**Why it hurts.** The sampler gives every rank the same number of samples: where the data set is not a multiple of the
number of ranks, it takes the first ones again. They count twice, so the metric is not that of the data set, changes
with the number of GPUs, and the count is larger than the data set. With few samples, or samples that are long, it
decides which checkpoint is the best. With one process all is right.

**Fix.** Give each rank its part without padding: `Subset(data, range(rank, len(data), world_size))`, since nothing in
the loop waits for other ranks. Or leave out on each rank what its sampler has repeated. In Lightning, a trainer for one
device: `Trainer(devices=1, num_nodes=1).test(...)`.

**When it stays quiet.** `drop_last=True` of the sampler; other samplers; a mean that each rank computes for itself;
code that speaks of duplicates, of a remainder or of what is divisible, or that cuts results; data sets of torchvision
with a length of their own, which is round; a loop that trains, or in which the ranks wait for each other; one process.
In Lightning: `use_distributed_sampler=False`, loaders with a sampler or `drop_last=True`, a number of devices that is
not known, validation. A note but for a test of Lightning, whose numbers are the result of a run.

**Evidence.** Two gloo ranks, torch 2.13, seven samples: each rank goes through four, the sum of the counts is eight,
and the first sample counts twice. Lightning 2.6 itself warns of it in tests (`_resolve_sampler` of
trainer/connectors/data_connector.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop, events
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.evaluations import Evaluation, shared_evaluations
from dslint.rules.data.lightningtests import LightningTest, padded_tests
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import is_of_all, is_sum

META = RuleMeta(
    code="DSL698",
    name="evaluation-counts-padding",
    kind="script",
    severity=Severity.INFO,
    summary="samples that a `DistributedSampler` repeats to fill the last round count twice in a metric",
    markers=(r"DistributedSampler|[lL]ightning", r"reduce|gather|\.test\("),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "https://github.com/RUCAIBox/RecBole/pull/1872",
        "https://github.com/pytorch/pytorch/issues/25162",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/4732",
    ),
    depends_on_run=True,
)
_SAMPLER = "torch.utils.data.DistributedSampler"
# Who writes this has thought of what the sampler repeats.
_KNOWS = re.compile(
    r"(?i)duplicat|divisible|total_size|remainder|unique|_seen\b|\[: *(?:len\(|n_|num_)|dedup|extra_samples|exact_eval"
    r"|%[ ]*[\w.]*(?:world_size|num_replicas|num_proc)|//[ ]*[\w.]*(?:world_size|num_replicas|num_proc)"
)
_DROPS = re.compile(r"(?i)duplicat|dedup|UnrepeatedDistributedSampler")
_FOLDERS = ("torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder")
_GATHERS = ("all_gather_object", "gather_object", "all_gather", "all_gather_into_tensor", "gather")
# How code may keep one result of each sample: by a key of it.
_BY_KEY = re.compile(r"\bset\(|\bdict\(|\.update\(|\{[^{}]*\bfor\b|\] = |\bnot in\b|groupby")
# How code counts samples: one by one, a batch of them, or what is true of them.
_COUNTS = re.compile(
    r"\blen\(|\.size\(|\.shape\b|\.numel\(|\.sum\(|\b1(?:\.0)?\b|batch_size|\.nelement\("
    r"|bincount\(|confusion_matrix\(|histc\("
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sampler that fills up shares whose counts are added up over the ranks."""
    for test in padded_tests(run):
        is_known = _is_round(test.loader.arguments.get("dataset")) or _KNOWS.search(_code_around(test.loader))
        if not is_known and not any(_DROPS.search(module.code) for module in run.machine.program.modules()):
            yield _finding_in_test(run, test)
    if run.context.is_one_process or not run.has("wraps-model", "prepares", "makes-engine", "starts-group"):
        return
    loaders = {found.event.node: found for found in run.occurrences("makes-loader") if _fills_up(run, found.event)}
    for found in shared_evaluations(run, loaders):
        is_told = (_is_sum(found.joined) and _adds_counts(found)) or (_is_list(found) and not _drops(found))
        if is_told and not _waits(found) and not _knows(found):
            yield _finding(run, found)


def _fills_up(run: RunQuery, event: Event) -> bool:
    """Return whether a loader certainly has a sampler that repeats samples."""
    given = event.arguments.get("sampler")
    atom = given.single if given is not None else None
    made = run.makers.get(atom) if isinstance(atom, Instance) and atom.cls == _SAMPLER else None
    if made is None or made.open or event.open or made.may:
        return False
    drops = made.arguments.get("drop_last")
    return (drops is None or drops.constants == (False,)) and not _is_round(made.arguments.get("dataset"))


def _is_round(data: Value | None) -> bool:
    """Return whether a data set is one of torchvision with a length of its own: these are round."""
    names = [atom.cls for atom in instances(data) if isinstance(atom.cls, str)]
    return any(name.startswith("torchvision.datasets.") and name not in _FOLDERS for name in names)


def _is_sum(event: Event) -> bool:
    return event.api.endswith((".all_reduce", ".reduce")) and is_sum(event) and is_of_all(event)


def _is_list(found: Evaluation) -> bool:
    """Return whether the ranks put lists together that the loop fills with what comes out for each sample."""
    if found.joined.api.rpartition(".")[2] not in _GATHERS:
        return False
    calls = (node.func for node in ast.walk(found.loop.node) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in ("append", "extend") for func in calls)


def _drops(found: Evaluation) -> bool:
    """Return whether the code around the loop or the gather may keep one result for each sample."""
    return any(_BY_KEY.search(_code_around(place)) for place in (found.loop, found.joined))


def _code_around(place: Loop | Event) -> str:
    scope = function_around(place.module, place.node)
    return place.module.text(scope) if scope is not None else place.module.code


def _adds_counts(found: Evaluation) -> bool:
    """Return whether the loop adds up a number of samples, and not only means of batches."""
    for node in ast.walk(found.loop.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            text = ast.unparse(node.value)
            if _COUNTS.search(text):
                return True
    return False


def _waits(found: Evaluation) -> bool:
    return any("collective" in event.tags for event in events(found.loop.body))


def _knows(found: Evaluation) -> bool:
    """Return whether the code around the loop, the reduction or the loader speaks of what is repeated."""
    return any(_KNOWS.search(_code_around(place)) for place in (found.loop, found.joined, found.loader.event))


def _finding(run: RunQuery, found: Evaluation) -> Finding:
    event = found.loader.event
    atom = instances(event.arguments["sampler"])[0]
    made = run.makers[atom]
    return run.finding(
        META,
        made.module,
        made.node,
        "This sampler repeats samples to fill the last round, and the evaluation counts them twice",
        hint="Take `Subset(data, range(rank, len(data), world_size))`, or leave out what is repeated",
        related=(
            run.location(found.loop.module, found.loop.node, "counts the samples of the share"),
            run.location(found.joined.module, found.joined.node, "puts the shares of the ranks together"),
        ),
    )


def _finding_in_test(run: RunQuery, test: LightningTest) -> Finding:
    call, loader, trainer = test.call, test.loader, test.trainer
    return run.finding(
        META,
        call.module,
        call.node,
        "Lightning tests on several devices and repeats samples to fill the last round: they count twice in the result",
        hint="Test with a trainer for one device: `Trainer(devices=1, num_nodes=1)`",
        related=(
            run.location(trainer.module, trainer.node, "a trainer for several devices"),
            run.location(loader.module, loader.node, "gets a sampler that repeats samples"),
        ),
        severity=Severity.WARNING,
    )


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset


def loaders(train, val, rank, world):
    sampler = DistributedSampler(train, drop_last=True)
    part = %s
    return DataLoader(train, 8, sampler=sampler), DataLoader(%s)


@torch.no_grad()
def evaluate(model, loader):
%s


def main(net, train, val):
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    loader, val_loader = loaders(train, val, dist.get_rank(), dist.get_world_size())
    for epoch in range(10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        print(evaluate(model, val_loader))


main(torch.load("net.pt"), torch.load("train.pt"), torch.load("val.pt"))
"""
_VECTOR = """\
    totals = torch.zeros(2)
    for x, y in loader:
        for line, label in zip(model(x), y):
            totals += torch.tensor([float(line.argmax() == label), 1.0])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()"""
_NUMBERS = """\
    hits, count = 0, 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
        count += len(y)
    sums = torch.tensor([hits, count])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    return sums[0].item() / sums[1].item()"""
_TWO = """\
    loss, seen = torch.zeros(1), torch.zeros(1)
    for x, y in loader:
        loss += torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
        seen += x.size(0)
    for value in (loss, seen):
        dist.all_reduce(value)
    return (loss / seen).item()"""
_MEANS = """\
    losses = []
    for x, y in loader:
        losses.append(torch.nn.functional.cross_entropy(model(x), y))
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()"""
_LISTS = """\
    found = []
    for x, y in loader:
        found.extend((model(x).argmax(1) == y).tolist())
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, found)
    found = [each for part in parts for each in part]%s
    return sum(found) / len(found)"""
_PADDED, _SHUFFLED = "DistributedSampler(val, shuffle=False)", "DistributedSampler(val, num_replicas=world, rank=rank)"
_CUT = "DistributedSampler(val, shuffle=False, drop_last=True)"
_OWN = "Subset(val, range(rank, len(val), world))"
_LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader


class Net(L.LightningModule):
    def test_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.layer(x).argmax(1) == y).float().mean(), sync_dist=True)


class Data(L.LightningDataModule):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def loader(self, part, **more):
        return DataLoader(self.rows[part], batch_size=8, **more)

    def test_dataloader(self):
        return self.loader("test"%(more)s)


def main(rows):
    trainer = L.Trainer(accelerator="gpu", devices=%(devices)s%(told)s)
    print(trainer.test(Net(), %(data)s))


main(torch.load("rows.pt"))
"""


def _test(
    devices: str = '4, strategy="ddp"', data: str = "datamodule=Data(rows)", more: str = "", told: str = ""
) -> str:
    return _LIGHTNING % {"devices": devices, "data": data, "more": more, "told": told}


_TOLD = "    # the sampler duplicates a few samples\n"

EXAMPLES = (
    bad("a tensor of sums", {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _VECTOR)}, "train.py:9 info"),
    bad("two numbers", {"train.py": _TRAIN % (_SHUFFLED, "val, 8, sampler=part", _NUMBERS)}, "train.py:9 info"),
    bad("one after the other", {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _TWO)}, "train.py:9 info"),
    bad("lists of results", {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _LISTS % "")}, "train.py:9 info"),
    bad("a test of Lightning", {"test.py": _test()}, "test.py:26 warning"),
    bad(
        "loaders that it is handed",
        {"test.py": _test("2", 'dataloaders=DataLoader(rows["test"], 8)')},
        "test.py:26 warning",
    ),
    bad("several machines", {"test.py": _test("-1, num_nodes=2, strategy='fsdp'")}, "test.py:26 warning"),
    bad(
        "processes of a command",
        {"test.py": _test("'auto', strategy='ddp'"), "run.sh": "torchrun --nproc_per_node 4 test.py\n"},
        "test.py:26 warning",
    ),
    good("one device", {"test.py": _test("1")}),
    good("nobody knows how many devices", {"test.py": _test("-1, strategy='ddp'")}),
    good(
        "a loader without samplers or with a rest that is dropped",
        {"off.py": _test(told=", use_distributed_sampler=False"), "drop.py": _test(more=", drop_last=True")},
    ),
    good(
        "lists that are cut",
        {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _LISTS % "[: len(loader.dataset)]")},
    ),
    good("parts without padding", {"train.py": _TRAIN % (_OWN, "part, 8", _VECTOR)}),
    good("the rest is dropped", {"train.py": _TRAIN % (_CUT, "val, 8, sampler=part", _NUMBERS)}),
    good("means of the ranks", {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _MEANS)}),
    good("the code knows", {"train.py": _TRAIN % (_PADDED, "val, 8, sampler=part", _TOLD + _NUMBERS)}),
)
