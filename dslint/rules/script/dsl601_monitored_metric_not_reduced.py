"""A callback of Lightning follows a metric that each rank has of its own part of the data.

**What.** `self.log("val_loss", loss)` in a Lightning module, without `sync_dist=True` or with `rank_zero_only=True`;
a `ModelCheckpoint`, an `EarlyStopping` or the `ReduceLROnPlateau` of `configure_optimizers` monitors `val_loss`, and
the trainer trains in several processes.

**Why it hurts.** Lightning gives each rank its share of the validation data and averages the metric over the batches
of that rank only. Each rank compares its own number: the best model is the best of one share, the ranks disagree on
whether to save or to stop, and a plateau schedule gives them different learning rates. With `rank_zero_only=True` the
metric is not even meant to be followed: Lightning documents that it cannot be used as a monitor. What only rank 0 logs
at all, under a test, the callbacks of the other ranks do not find, and raise.

**Fix.** `self.log("val_loss", loss, sync_dist=True)`, or log a `torchmetrics` object itself, which reduces its state.

**When it stays quiet.** `sync_dist=True`, or a value that nobody can read; a value that was gathered, reduced or
computed by a metric (`metric.compute()`); a metric object; a trainer of one process, or one whose strategy is not
certain; `use_distributed_sampler=False`; metrics that nothing monitors.

**Evidence.** lightning 2.6.6, two ranks with `strategy="ddp"`: the ranks hold different `callback_metrics` and
`best_model_score`; with `sync_dist=True` both hold the mean. `_Sync._generate_sync_fn` in
lightning/pytorch/trainer/connectors/logger_connector/result.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import Instance, Value
from dslint.python.varies import DATA, LOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.someranks import some_ranks
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import adds_sampler, is_one_process, trainers

META = RuleMeta(
    code="DSL601",
    name="monitored-metric-not-reduced",
    kind="script",
    severity=Severity.WARNING,
    summary="a callback of Lightning follows a metric that each rank has of its own part of the data",
    markers=(r"lightning",),
    references=(
        "https://lightning.ai/docs/pytorch/stable/visualize/logging_advanced.html#sync-dist",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/8190",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/19045",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/15852",
    ),
    no_experiment="needs Lightning, which the experiments do not install",
    depends_on_run=True,
)
_SUFFIXES = ("", "_epoch", "_step")
# These raise where nothing has logged what they follow.
_STRICT = ("ModelCheckpoint", "EarlyStopping")
_LOGS = "collective-if sync_dist=True"


@dataclass(frozen=True, slots=True)
class _Monitor:
    """What follows a metric: its name, and where it is written."""

    name: str
    metric: str
    module: Module
    node: ast.AST


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that logs a monitored metric for its own rank only."""
    if is_one_process(run) or not adds_sampler(run):
        return
    monitors = [*_callbacks(run), *_schedules(run)]
    told: set[int] = set()
    for found in run.occurrences(_LOGS) if monitors else ():
        event = found.event
        if id(event.node) in told or event.open or not _is_own(event) or event.lanes != run.machine.worlds.full:
            continue
        for metric in _own_metrics(run, event):
            monitor = next((m for m in monitors if m.metric in {metric + suffix for suffix in _SUFFIXES}), None)
            if monitor is not None:
                told.add(id(event.node))
                yield _finding(run, event, metric, monitor)
                break
    yield from _missing_elsewhere(run, monitors) if monitors else ()


def _missing_elsewhere(run: RunQuery, monitors: list[_Monitor]) -> Iterator[Finding]:
    """Yield what only rank 0 logs although a callback on every rank looks for it."""
    for found in run.happenings(_LOGS):
        event = found.event
        names = _texts(event.arguments.get("name"))
        monitor = next((m for m in monitors if m.metric in names and m.name in _STRICT), None)
        if monitor is None or event.open:
            continue
        some = some_ranks(run, found)
        if some is not None and some.who(run) == "only rank 0":
            yield run.finding(
                META,
                event.module,
                event.node,
                f"`{monitor.metric}` is logged on rank 0 only: `{monitor.name}` does not find it on other ranks"
                " and raises",
                hint="Log it on every rank",
                related=(
                    run.location(some.test.module, some.asked, "keeps the other ranks away"),
                    run.location(monitor.module, monitor.node, f"follows `{monitor.metric}`"),
                ),
                facts={"metric": monitor.metric},
            )


def _callbacks(run: RunQuery) -> Iterator[_Monitor]:
    for found in run.happenings("follows-metric"):
        event = found.event
        metrics = _texts(event.arguments.get("monitor"))
        if len(metrics) == 1 and not event.open:
            yield _Monitor(event.api.rpartition(".")[2], metrics[0], event.module, event.node)


def _schedules(run: RunQuery) -> Iterator[_Monitor]:
    """Yield what `configure_optimizers` of a module names beside a schedule that follows a metric."""
    for cls in run.machine.program.noted.classes:
        if not attributes.is_instance_of(run.machine, cls, "lightning.LightningModule"):
            continue
        if "ReduceLROnPlateau" not in cls.module.text(cls.node):
            continue
        for node in ast.walk(cls.node):
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value == "monitor" and isinstance(value, ast.Constant):
                    yield _Monitor("ReduceLROnPlateau", str(value.value), cls.module, value)


def _is_own(event: Event) -> bool:
    """Return whether what is logged is not reduced over the ranks."""
    synced = event.arguments.get("sync_dist")
    return synced is None or synced.constants == (False,) or _is_of_rank_zero(event)


def _is_of_rank_zero(event: Event) -> bool:
    only = event.arguments.get("rank_zero_only")
    return only is not None and only.constants == (True,)


def _own_metrics(run: RunQuery, event: Event) -> Iterator[str]:
    """Yield the names of the logged numbers that come from each rank's own data."""
    role = "value" if "value" in event.arguments else "dictionary"
    varies, _, _ = event.snapshot.get(role, (0, 0, None))
    if not varies & DATA or varies & LOST:
        return
    node = event.nodes.get(role)
    if role == "value":
        if not _may_be_metric(run, event.arguments[role], node):
            yield from _texts(event.arguments.get("name"))
        return
    for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
        if isinstance(key, ast.Constant) and not isinstance(value, ast.Attribute | ast.Constant):
            yield str(key.value)


def _may_be_metric(run: RunQuery, value: Value, node: ast.expr | None) -> bool:
    """Return whether an object is logged that reduces its state itself."""
    made = [atom for atom in value.atoms if isinstance(atom, Instance)]
    libraries = run.machine.libraries
    if any(not isinstance(a.cls, str) or libraries.is_class(a.cls, "metric") or "etric" in a.cls for a in made):
        return True
    return isinstance(node, ast.Attribute) and ast.unparse(node).startswith("self.")


def _texts(value: Value | None) -> list[str]:
    return [text for text in (value.constants if value is not None else None) or () if isinstance(text, str)]


def _finding(run: RunQuery, event: Event, metric: str, monitor: _Monitor) -> Finding:
    how = "for rank 0 only" if _is_of_rank_zero(event) else "without `sync_dist=True`"
    role = "value" if "value" in event.arguments else "dictionary"
    trainer = trainers(run)[0]
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{metric}` is logged {how}: `{monitor.name}` follows a different number on each rank",
        hint="Log it with `sync_dist=True`, or log a torchmetrics object",
        related=(
            run.location(monitor.module, monitor.node, f"follows `{monitor.metric}`"),
            run.location(trainer.module, trainer.node, "trains in several processes"),
        ),
        varies=event.snapshot[role][0],
        facts={"metric": metric},
    )


_MODULE = """\
import lightning as L
import torch
import torch.nn.functional as F
import torchmetrics


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.score = torchmetrics.Accuracy(task="binary")

    def _common(self, batch, stage):
        x, y = batch
        loss = F.cross_entropy(self.layer(x), y)
        self.score(self.layer(x).argmax(1), y)
        %s
        return loss

    def training_step(self, batch, index):
        return self._common(batch, "train")

    def validation_step(self, batch, index):
        self._common(batch, "val")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return %s
"""
_TRAIN = """\
import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from net import Net


def main(train, val):
    trainer = L.Trainer(%s, callbacks=[%s])
    trainer.fit(Net(), train, val)


if __name__ == "__main__":
    main(torch.load("train.pt"), torch.load("val.pt"))
"""
_COLLECTED = """\
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.losses = torch.nn.Linear(4, 2), []

    def training_step(self, b, i):
        return self.layer(b).mean()

    def validation_step(self, b, i):
        self.losses.append(self.layer(b).mean())

    def on_validation_epoch_end(self):
        loss = torch.stack(self.losses).mean()
        self.log("val_loss", loss)
        self.losses.clear()
"""
_GATHERED = (
    _COLLECTED.replace("self.layer, self.losses = torch.nn.Linear(4, 2), []", "self.layer = torch.nn.Linear(4, 2)")
    .replace("self.losses.append(self.layer(b).mean())", "return self.layer(b).mean()")
    .replace("on_validation_epoch_end(self)", "validation_epoch_end(self, outputs)")
    .replace("torch.stack(self.losses)", "torch.stack(outputs)")
    .replace("loss)\n        self.losses.clear()", "loss%s)")
)
_BASE = """\
import lightning as L
import torch


class Base(L.LightningModule):
    def report(self, stage, numbers):
        for name, number in numbers.items():
            self.log(f"{stage}_{name}", number%s)


class Net(Base):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def validation_step(self, batch, index):
        out = self.layer(batch)
        self.report("val", {"loss": out.mean(), "peak": out.max()})
"""
_LOG = 'self.log(f"{stage}_loss", loss%s)'
_MAIN = 'if self.trainer.is_global_zero:\n            self.log("val_%s", 1.0)'
_BEST = 'ModelCheckpoint(monitor="val_loss", save_top_k=3)'
_DDP = 'devices=4, strategy="ddp"'
_PLAIN = "optimizer"
_PLATEAU = (
    '{"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), '
    '"monitor": "val_loss"}}'
)


def _files(log: str, trainer: str, callbacks: str, optimizers: str = _PLAIN) -> dict[str, str]:
    return {"net.py": _MODULE % (log, optimizers), "train.py": _TRAIN % (trainer, callbacks)}


EXAMPLES = (
    bad(
        "what the end of an epoch gets in Lightning 1",
        {
            "net.py": _GATHERED % "",
            "train.py": _TRAIN % (_DDP, _BEST),
            "requirements.txt": "lightning==1.9.5\n",
        },
        "net.py:18",
    ),
    good(
        "what the end of an epoch gets is reduced",
        {
            "net.py": _GATHERED % ", sync_dist=True",
            "train.py": _TRAIN % (_DDP, _BEST),
            "requirements.txt": "lightning==1.9.5\n",
        },
    ),
    bad("the best checkpoint of one share of the data", _files(_LOG % "", _DDP, _BEST), "net.py:17 warning"),
    bad("logged for rank 0, and followed by all ranks",
        _files(_LOG % ", rank_zero_only=True", _DDP, 'EarlyStopping("val_loss")'), "net.py:17 warning"),
    bad("logged by the main process alone", _files(_MAIN % "loss", _DDP, _BEST),
        "net.py:18 warning"),
    good("another metric, logged by the main process alone",
         _files(_MAIN % "time", _DDP, _BEST)),
    bad("a strategy object, and a dictionary of metrics",
        _files('self.log_dict({"loss": loss, "one": 1.0})', "devices=2, strategy=DDPStrategy()",
               'EarlyStopping(monitor="loss")'), "net.py:17 warning"),
    bad("a schedule that follows a plateau", _files(_LOG % "", "devices=8, accelerator='gpu'", "", _PLATEAU),
        "net.py:17 warning"),
    bad("losses that an epoch collects, whatever the batch is called",
        {"net.py": _COLLECTED, "train.py": _TRAIN % (_DDP, _BEST)}, "net.py:18 warning"),
    bad("names and numbers that a base class logs one by one",
        {"net.py": _BASE % "", "train.py": _TRAIN % (_DDP, _BEST)}, "net.py:8 warning"),
    good("a base class that reduces all", {"net.py": _BASE % ", sync_dist=True", "train.py": _TRAIN % (_DDP, _BEST)}),
    good("reduced over the ranks", _files(_LOG % ", sync_dist=True", _DDP, _BEST)),
    good("reduced where it is followed", _files(_LOG % ', sync_dist=stage == "val"', _DDP, _BEST)),
    good("a metric that reduces its state", _files('self.log("val_loss", self.score)', _DDP, _BEST)),
    good("gathered before", _files('self.log("val_loss", self.all_gather(loss).mean())', _DDP, _BEST)),
    good("one process", _files(_LOG % "", "devices=1", _BEST)),
    good("nothing follows it", _files(_LOG % "", _DDP, "ModelCheckpoint(save_last=True)")),
)  # fmt: skip
