"""One rank asks a trainer of Lightning for its metrics while the others run another collective.

**What.** `trainer.callback_metrics`, `logged_metrics` or `progress_bar_metrics` is read on one rank only, in
`on_train_epoch_end`, `on_validation_epoch_end` or `on_test_epoch_end`; a metric is logged with `sync_dist=True`; and
after that a collective runs in the same hook: `all_gather` of the module, a barrier, `compute()` of a metric.

**Why it hurts.** These are properties that compute the metrics of the epoch the first time that somebody asks, and
for a metric with `sync_dist=True` this is an all-reduce. The one rank is in the all-reduce while the others are in
their collective: the two never match, and the job hangs or adds numbers of different things.

**Fix.** Read the metrics on every rank, and write only on one: `metrics = trainer.callback_metrics` above the test.
Or do it in `on_validation_end`, where Lightning has computed them on every rank.

**When it stays quiet.** No metric is logged with `sync_dist=True`, or only for steps; nothing else talks to other
ranks in the hook after that (then the other ranks come to the same all-reduce when the hook ends); every rank has
read the metrics before; a trainer of one process.

**Evidence.** lightning 2.6: `_ResultCollection.metrics` calls `compute()` of each metric that is not computed yet, and
the evaluation loop computes them itself after the hook (`on_run_end` in loops/evaluation_loop.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.someranks import SomeRanks, some_ranks
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import is_one_process, is_single, trainers

META = RuleMeta(
    code="DSL662",
    name="metrics-computed-on-one-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank asks a trainer of Lightning for its metrics while the others run another collective",
    markers=(r"lightning", r"(?:callback|logged|progress_bar)_metrics"),
    references=("https://github.com/talmolab/sleap-nn/pull/476",),
    no_experiment="needs Lightning, which the experiments do not install",
    depends_on_run=True,
)
# The hooks in which the metrics of an epoch are not computed yet, and what they begin with of the same stage.
_HOOKS = {"on_train_epoch_end": "train", "on_validation_epoch_end": "validation", "on_test_epoch_end": "test"}
_LOGS = "collective-if sync_dist=True"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each read of the metrics on some ranks that another collective follows in the same hook."""
    made = trainers(run)
    if is_one_process(run) or (made and all(map(is_single, made))):
        return
    for found in run.happenings("computes-metrics"):
        hook = _hook(found)
        some = some_ranks(run, found) if hook else None
        synced = _synced(run, _HOOKS[hook]) if some is not None else None
        if some is None or synced is None or found.event.may or _was_read(run, found, hook):
            continue
        next_ = _next_collective(run, found, hook)
        if next_ is not None:
            yield _finding(run, some, synced, next_)


def _hook(found: Happening) -> str:
    """Return the hook in which something happens; empty for none."""
    names = (getattr(call.function, "name", "") for call in found.calls)
    entered = getattr(found.entry.node, "name", "")
    return next((name for name in (*names, entered) if name in _HOOKS), "")


def _synced(run: RunQuery, stage: str) -> Event | None:
    """Return a call that certainly logs a metric of the epoch over the ranks, in a step of a stage."""
    for found in run.occurrences(_LOGS):
        given = found.event.arguments
        names = " ".join(getattr(call.function, "name", "") for call in found.calls)
        names += getattr(found.entry.node, "name", "")
        is_synced = "sync_dist" in given and given["sync_dist"].constants == (True,)
        of_epoch = given.get("on_epoch")
        is_epoch = of_epoch.constants == (True,) if of_epoch is not None else stage != "train"
        if is_synced and is_epoch and f"{stage}_step" in names:
            return found.event
    return None


def _was_read(run: RunQuery, found: Happening, hook: str) -> bool:
    """Return whether every rank has read the metrics before, in the same hook."""
    for other in run.occurrences("computes-metrics"):
        if other.event is found.event:
            return False
        if _hook(other) == hook and some_ranks(run, other) is None:
            return True
    return False


def _next_collective(run: RunQuery, found: Happening, hook: str) -> Event | None:
    """Return the first collective of all ranks that comes later in the same hook, of any object."""
    is_later = False
    for other in run.occurrences("computes-metrics", "collective"):
        is_later |= other.event is found.event
        event = other.event
        is_of_all = "collective" in event.tags and not event.may and event.lanes == run.machine.worlds.full
        if is_later and is_of_all and other.entry is found.entry and _hook(other) == hook:
            return event
    return None


def _finding(run: RunQuery, some: SomeRanks, synced: Event, next_: Event) -> Finding:
    event = some.found.event
    name, other = event.api.rpartition(".")[2], next_.api.rpartition(".")[2]
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{name}` reduces the metrics over all ranks, but {some.who(run)} reads it: the others run `{other}`"
        " meanwhile",
        hint=f"Read `{name}` on every rank, above the test",
        related=(
            run.location(some.test.module, some.asked, "keeps the other ranks away"),
            run.location(synced.module, synced.node, "logged over the ranks"),
            run.location(next_.module, next_.node, "what the others run"),
        ),
        facts={"property": name},
    )


_NET = """\
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.outputs = []

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def validation_step(self, batch, index):
        out = self.layer(batch)
        self.outputs.append(out)
        self.log("val_loss", out.mean()%s)

    def on_validation_epoch_end(self):
        %s
        self.outputs.clear()
"""
_TRAIN = """\
import csv

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only

from net import Net


class Table(Callback):
    def row(self, trainer):
        with open("metrics.csv", "a") as file:
            csv.writer(file).writerow([trainer.current_epoch, trainer.callback_metrics["val_loss"].item()])

%s

def main(train, val):
    trainer = L.Trainer(devices=4, strategy="ddp", callbacks=[Table()])
    trainer.fit(Net(), train, val)


if __name__ == "__main__":
    main(torch.load("train.pt"), torch.load("val.pt"))
"""
_GATHERS = "print(self.all_gather(torch.cat(self.outputs)).mean())"
_GUARDED = """\
    def %s(self, trainer, module):
        if trainer.is_global_zero:
            self.row(trainer)
"""
_DECORATED = """\
    @rank_zero_only
    def on_validation_epoch_end(self, trainer, module):
        self.row(trainer)
"""
_BEFORE = """\
    def on_validation_epoch_end(self, trainer, module):
        print(len(trainer.callback_metrics))
        if trainer.is_global_zero:
            self.row(trainer)
"""
_OWN = """\
if self.trainer.is_global_zero:
            print(self.trainer.logged_metrics)
        print(self.all_gather(torch.cat(self.outputs)).mean())"""


def _files(callback: str, synced: str = ", sync_dist=True", end: str = _GATHERS) -> dict[str, str]:
    return {"net.py": _NET % (synced, end), "train.py": _TRAIN % callback}


_VALIDATED = "on_validation_epoch_end"
EXAMPLES = (
    bad("a helper under a test of the main process", _files(_GUARDED % _VALIDATED), "train.py:14 warning"),
    bad("a hook of the main process", _files(_DECORATED), "train.py:14 warning"),
    bad("in the module itself", _files("    pass\n", end=_OWN), "net.py:21 warning"),
    good("in the hook after the metrics are computed", _files(_GUARDED % "on_validation_end")),
    good("nothing is reduced", _files(_GUARDED % _VALIDATED, "")),
    good("no other collective", _files(_GUARDED % _VALIDATED, end="print(len(self.outputs))")),
    good("every rank has asked before", _files(_BEFORE)),
)
