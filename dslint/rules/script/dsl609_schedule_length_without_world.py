"""The length of a schedule counts the batches of the whole data set, and each process makes only its share.

**What.** The numbers of a learning rate schedule (or `max_steps` and `warmup_steps` of `TrainingArguments`) come from
the size of the data set, divided by the batch size of one process, and the number of processes takes no part:
`len(dataset) // batch_size * epochs` beside a `DistributedSampler` or a loader that accelerate prepares, or in a
`LightningModule` that a Trainer with `ddp` runs. In Lightning also the length of
`self.trainer.datamodule.train_dataloader()`, which has no sampler of ranks yet.

**Why it hurts.** With N processes an epoch has 1/N of these steps. The warmup takes N times its share, and the
schedule is left after its first part: the learning rate never comes down. `max_steps` trains N times as long as asked
for. Nothing fails.

**Fix.** Divide by the number of processes; or ask the loader that has the sampler (`len(loader)`); in Lightning
`self.trainer.estimated_stepping_batches`.

**When it stays quiet.** The number of processes, a global batch or the number of devices takes part anywhere after
the numbers; the divisor is not certainly the batch size of one process; one process; no certain sign of several; a
schedule that accelerate prepares, which runs once for each process (DSL284).

**Evidence.** Two gloo ranks: a linear schedule over `len(dataset) // batch_size` steps has half its learning rate left
when the run ends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.derived import Derived, Piece
from dslint.python.queries.factors import Factors
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import splits_batches
from dslint.rules.training.lightnings import adds_sampler
from dslint.rules.training.plateaus import instances
from dslint.rules.training.schedules import OPTIMIZERS, is_length, knows_world, number_code

META = RuleMeta(
    code="DSL609",
    name="schedule-length-without-world",
    kind="script",
    severity=Severity.WARNING,
    summary="a schedule counts the batches of the whole data set, and each process makes only its share",
    markers=(r"distributed|lightning|Trainer", r"schedul|OneCycleLR|LambdaLR|AnnealingLR|warmup|max_steps"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/2149",
        "https://lightning.ai/docs/pytorch/stable/common/trainer.html#estimated-stepping-batches",
    ),
    depends_on_run=True,
)
_ARGUMENTS = ("warmup_steps", "max_steps")
# An argument that only several processes need.
_OF_RANKS = re.compile(r"^ddp_|^fsdp|^deepspeed$|^local_rank$")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each schedule whose length certainly leaves out the number of processes."""
    if run.context.is_one_process or not run.has("makes-scheduler", "training-arguments"):
        return
    derived = number_code(run)
    factors = Factors(run.machine.program.modules(), (tree for _, tree in run.trees()))
    sizes = _own_sizes(run, factors)
    seen: set[int] = set()
    for found in run.occurrences("makes-scheduler", "training-arguments") if sizes else ():
        event = found.event
        if id(event.node) in seen or event.may or event.open or _is_prepared(run, event):
            continue
        pieces = derived.of(event.module, [node for _, node in _numbers(event)])
        if not pieces or any(knows_world(node) for _, node in pieces):
            continue
        place = next((p for p in map(_Whole(derived, factors, sizes).place, pieces) if p is not None), None)
        if place is not None and not _is_limited(run, found):
            seen.add(id(event.node))
            yield _finding(run, event, place)


def _numbers(event: Event) -> list[tuple[str, ast.expr]]:
    """Return the arguments that say how long something lasts."""
    if "training-arguments" in event.tags:
        return [(name, event.nodes[name]) for name in _ARGUMENTS if name in event.nodes]
    return [(name, node) for name, node in event.nodes.items() if not OPTIMIZERS.search(name)]


def _own_sizes(run: RunQuery, factors: Factors) -> list[list[str]]:
    """Return the batch sizes of one process, by their factors, where several processes share a data set."""
    found: list[list[str]] = []
    divided = {atom for h in run.occurrences("makes-distributed-sampler") for atom in instances(h.event.result)}
    shared = {atom for h in run.occurrences("prepares") for v in h.event.arguments.values() for atom in instances(v)}
    is_lightning = adds_sampler(run)
    for happening in run.occurrences("makes-loader"):
        event = happening.event
        sampler = instances(event.arguments.get("sampler"))
        is_shared = any(atom in shared for atom in instances(event.result)) and not splits_batches(run)
        node = event.nodes.get("batch_size")
        if node is not None and (is_lightning or is_shared or (sampler and all(atom in divided for atom in sampler))):
            found.append(factors.of(event.module, node))
    for happening in run.occurrences("training-arguments"):
        event = happening.event
        node = event.nodes.get("per_device_train_batch_size")
        if node is not None and _is_of_ranks(run, event):
            found.append(factors.of(event.module, node))
    return [size for size in found if size] + ([["train_dataloader()"]] if is_lightning else [])


def _is_of_ranks(run: RunQuery, event: Event) -> bool:
    """Return whether a Trainer is certainly meant for several processes."""
    if run.context.world_size.get_or(0) > 1 or run.has("main-first", "local-main-first"):
        return True
    given = (name for name, value in event.arguments.items() if value.constants not in ((None,), ("",), (-1,)))
    return any(_OF_RANKS.search(name) for name in given)


def _is_prepared(run: RunQuery, event: Event) -> bool:
    made = set(instances(event.result))
    return any(
        atom in made
        for h in run.occurrences("prepares")
        for value in h.event.arguments.values()
        for atom in instances(value)
    )


def _is_limited(run: RunQuery, found: Happening) -> bool:
    """Return whether nothing says that several processes run what makes the schedule."""
    return "training-arguments" not in found.event.tags and not (
        adds_sampler(run) or run.has("wraps-model", "makes-engine", "prepares")
    )


class _Whole:
    """Finds a division of the whole data set by the batch size of one process."""

    def __init__(self, derived: Derived, factors: Factors, sizes: list[list[str]]) -> None:
        self.derived, self.factors, self.sizes = derived, factors, sizes

    def place(self, piece: Piece) -> tuple[Module, ast.AST] | None:
        """Return the division in a piece of code, or the length of a loader that nothing has divided yet."""
        module, node = piece
        for inner in ast.walk(node):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div | ast.FloorDiv):
                divisor = self._divisor(module, inner)
                if self._is_own(divisor) and self._counts(module, inner.left):
                    return module, inner
            elif is_length(inner) and isinstance(inner, ast.Call) and ["train_dataloader()"] in self.sizes:
                asked = inner.args[0] if inner.args else None
                if isinstance(asked, ast.Call) and ast.unparse(asked.func).endswith(".train_dataloader"):
                    return module, inner
        return None

    def _divisor(self, module: Module, node: ast.BinOp) -> list[str]:
        """Return by what a number is divided, in several steps: `n // batch // steps`."""
        found = self.factors.of(module, node.right)
        left: ast.expr = node.left
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div | ast.FloorDiv):
            found, left = [*found, *self.factors.of(module, left.right)], left.left
        return found

    def _is_own(self, divisor: list[str]) -> bool:
        return any(size and all(part in divisor for part in size) for size in self.sizes)

    def _counts(self, module: Module, node: ast.expr) -> bool:
        """Return whether a number is the length of something that is no loader."""
        behind = self.derived.of(module, [node]) or []
        lengths = [n for _, piece in behind for n in ast.walk(piece) if is_length(n)]
        texts = [ast.unparse(n) for n in lengths]
        return bool(texts) and not any(re.search(r"load|sampler|batches|steps_per|iters_per", text) for text in texts)


def _finding(run: RunQuery, event: Event, place: tuple[Module, ast.AST]) -> Finding:
    module, node = place
    is_trainer = "training-arguments" in event.tags
    at = next((n for _, n in _numbers(event)), event.node) if is_trainer else event.node
    is_lightning = event.module.path and any("lightning" in name for name in event.module.imported)
    hint = "Use `self.trainer.estimated_stepping_batches`" if is_lightning else "Divide by the number of processes"
    return run.finding(
        META,
        event.module,
        at,
        "The steps are counted from the whole data set, but each process makes only its share: the schedule is"
        " too long",
        hint=hint,
        related=(run.location(module, node, "counts the batches of all processes"),),
    )


_LIT = """\
import lightning as L
import torch
from torch.utils.data import DataLoader

from schedules import make


class Data(L.LightningDataModule):
    def __init__(self, rows, batch_size):
        super().__init__()
        self.rows, self.batch_size = rows, batch_size

    def train_dataloader(self):
        return DataLoader(self.rows, self.batch_size, shuffle=True)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        data = self.trainer.datamodule
        schedule = make(optimizer, %s, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(rows):
    trainer = L.Trainer(devices=4, strategy="%s", max_epochs=3)
    trainer.fit(Net(), datamodule=Data(rows, 8))
"""
_SCHEDULES = """\
import torch


def make(optimizer, per_epoch, epochs):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=per_epoch * epochs)
"""
_DDP = """\
import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import get_linear_schedule_with_warmup


def main(net, data, args):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters())
    updates = %s * args.epochs
    schedule = get_linear_schedule_with_warmup(optimizer, 100, updates)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x in loader:
            model(x).mean().backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    dist.destroy_process_group()
"""
_TRAINER = """\
from transformers import Trainer, TrainingArguments


def steps(rows, batch, accumulate):
    return rows // (batch * accumulate%s)


def main(model, data, batch, accumulate, world):
    args = TrainingArguments(
        "out",
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate,
        warmup_steps=int(0.1 * steps(len(data), batch, accumulate)),
        ddp_find_unused_parameters=False,
    )
    Trainer(model=model, args=args, train_dataset=data).train()
"""
_OF_DATA = "len(data.rows) // data.batch_size"


def _lit(length: str, strategy: str = "ddp") -> dict[str, str]:
    return {"train.py": _LIT % (length, strategy), "schedules.py": _SCHEDULES}


_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main(model, data, args):
    accelerator = Accelerator(%s)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(data) // args.batch * args.epochs)
    model, optimizer, loader%s = accelerator.prepare(model, optimizer, loader%s)
    for epoch in range(args.epochs):
        for x in loader:
            accelerator.backward(model(x).mean())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
"""

EXAMPLES = (
    bad("beside a loader that accelerate prepares", {"train.py": _ACCELERATE % ("", "", "")}, "train.py:10 warning"),
    good("accelerate steps it for each process", {"train.py": _ACCELERATE % ("", ", schedule", ", schedule")}),
    good("accelerate divides the batches", {"train.py": _ACCELERATE % ("split_batches=True", "", "")}),
    bad("the data set in a LightningModule, and a helper", _lit(_OF_DATA), "schedules.py:5 warning"),
    bad("a loader without a sampler yet", _lit("len(data.train_dataloader())"), "schedules.py:5 warning"),
    bad("beside a DistributedSampler", {"train.py": _DDP % "math.ceil(len(data) / args.batch)"}, "train.py:17 warning"),
    bad("the warmup of a Trainer", {"train.py": _TRAINER % ""}, "train.py:13 warning"),
    good("the loader that has the sampler", {"train.py": _DDP % "len(loader)"}),
    good(
        "divided by the processes",
        {"train.py": _DDP % "math.ceil(len(data) / (args.batch * dist.get_world_size()))"},
    ),
    good("Lightning counts", _lit("self.trainer.num_training_batches")),
    good(
        "one device",
        {"train.py": (_LIT % (_OF_DATA, "auto")).replace("devices=4", "devices=1"), "schedules.py": _SCHEDULES},
    ),
    good("a batch of all processes", {"train.py": _DDP % "(len(data) // args.global_batch)"}),
    good("one process", {"train.py": _TRAINER % ""}, world_size=1),
)
