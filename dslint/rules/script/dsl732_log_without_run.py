"""Every rank calls `wandb.log`, and the only run is the one that a library opens on the main process.

**What.** The script never calls `wandb.init`: a `WandbLogger` of Lightning, `accelerator.init_trackers` or the Trainer
of transformers opens the run, on the main process alone. A hook, a step or a metric that every rank runs calls
`wandb.log(...)` itself.

**Why it hurts.** With one process all is well. With several every other rank stops at its first report with
`You must call wandb.init() before wandb.log()`, often as early as the sanity check of the validation, and the job dies.

**Fix.** Put `if self.trainer.is_global_zero:` (`accelerator.is_main_process`, `state.is_world_process_zero`) around it,
or report through the library: `self.logger.log_image(...)`, `accelerator.log(...)`, `trainer.log(...)`.

**When it stays quiet.** A script that calls `wandb.init` itself (DSL615 compares who did); a test of the rank, of the
run or of the logger around the call; a call that is tried; a trainer of one process, or one of which nothing says that
it has several.

**Evidence.** wandb 0.31, `wandb/sdk/lib/preinit.py`: `PreInitCallable` raises `wandb.Error` on each call before
`wandb.init`. lightning 2.6, `WandbLogger.experiment` is a `rank_zero_experiment`; accelerate 1.15, `init_trackers` is
`@on_main_process`; transformers, `WandbCallback.setup` tests `state.is_world_process_zero`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several, is_one_process, trainers
from dslint.rules.training.trackers import asks_for_rank, is_for_all

META = RuleMeta(
    code="DSL732",
    name="log-without-run",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank calls wandb.log, and a library has opened the run on the main process alone",
    markers=(r"\bwandb\.(?:log|save|alert|define_metric|use_artifact|log_artifact|log_model)\(",),
    references=(
        "https://github.com/vita-epfl/UniTraj/pull/23",
        "https://docs.wandb.ai/guides/track/log/distributed-training/",
    ),
    depends_on_run=True,
    no_experiment="it takes wandb, and a library that starts its run",
)
_STARTS = re.compile(r"wandb\.init\(|wandb\.setup\(|import init\b|WANDB_(?:MODE|DISABLED)|wandb\.(?:agent|sweep)\(")
_TRAINERS = ("transformers", "trl")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each call that needs a run where only the main process has one."""
    if is_one_process(run) or not run.has("needs-run") or run.has("starts-run"):
        return
    if any(module.search(_STARTS) for module in run.machine.program.modules()):
        return
    where = _opened(run)
    if where is None:
        return
    for found in run.happenings("needs-run"):
        event = found.event
        is_all = event.lanes == run.machine.worlds.full and not event.may
        if not is_all or not event.api.startswith("wandb.") or asks_for_rank(found) or not is_for_all(found):
            continue
        name = run.text(event.module, getattr(event.node, "func", event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            f"every rank calls `{name}`, and only the main process has a run: the others raise",
            hint="Test for the main process around it, or report through the logger of the library",
            related=(where,),
            facts={"called": name},
        )


def _opened(run: RunQuery) -> Location | None:
    """Return where a library opens the run on the main process, in a job of several processes."""
    made = trainers(run)
    if made and all(map(has_several, made)):
        loggers = [found.event for found in run.happenings("tracker") if found.event.api.endswith(".WandbLogger")]
        return next((_place(run, event) for event in loggers), None)
    for event in (found.event for found in run.happenings("tracker")):
        if event.api.endswith("Accelerator.init_trackers") and not event.may and _logs_with_wandb(run):
            return _place(run, event)
    if run.context.world_size.get_or(0) < 2 and not intends_several(run):
        return None
    train = [found.event for found in run.happenings("trainer-train")]
    return next((_place(run, event) for event in train if event.api.partition(".")[0] in _TRAINERS), None)


def _logs_with_wandb(run: RunQuery) -> bool:
    """Return whether an `Accelerator` of the run certainly reports to Weights & Biases."""
    made = [found.event for found in run.happenings("starts-group") if found.event.api == "accelerate.Accelerator"]
    told = [run.likely(event.arguments.get("log_with")) for event in made]
    return bool(told) and all(words is not None and {"wandb", "all"} >= set(words) and words for words in told)


def _place(run: RunQuery, event: Event) -> Location:
    return run.location(event.module, event.node, "opens the run on the main process")


_MODEL = """\
import lightning as L
import torch
import wandb


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.net(batch).mean()

    def validation_step(self, batch, index):
        loss = self.net(batch).mean()
        if %s:
            self.show(batch[0])
        return loss

    def show(self, row):
        wandb.log({"row": row.tolist()})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
_TRAIN = """\
import lightning as L
from lightning.pytorch.loggers import %s

from data import loaders
from model import Model


def main():
    logger = %s("runs")
    trainer = L.Trainer(devices=%s, strategy=%s, logger=logger)
    trainer.fit(Model(), *loaders())


if __name__ == "__main__":
    main()
"""
_ACCELERATE = """\
import wandb
from accelerate import Accelerator


def evaluate(model, loader):
    scores = [model(batch).mean().item() for batch in loader]
    %s


def main(model, loader):
    accelerator = Accelerator(log_with=%s)
    accelerator.init_trackers("project")
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
    evaluate(model, loader)


main(load_model(), load_data())
"""
_HF = """\
import wandb
from transformers import Trainer, TrainerCallback, TrainingArguments


class Show(TrainerCallback):
    def on_evaluate(self, args, state, control, **kwargs):
        %s


def main():
    args = TrainingArguments("out", report_to="wandb", ddp_find_unused_parameters=False)
    trainer = Trainer(model=load_model(), args=args, train_dataset=load_rows(), callbacks=[Show()])
    trainer.train()


main()
"""
_LOG = 'wandb.log({"score": sum(scores)})'


def _lightning(test: str, devices: str = "4", strategy: str = '"ddp"', logger: str = "WandbLogger") -> dict[str, str]:
    return {"train.py": _TRAIN % (logger, logger, devices, strategy), "model.py": _MODEL % test}


EXAMPLES = (
    bad("a helper of a validation step", _lightning("index == 0"), "model.py:21 warning"),
    bad("accelerate", {"train.py": _ACCELERATE % (_LOG, '"wandb"')}, "train.py:7 warning"),
    bad("a callback of a Trainer", {"train.py": _HF % 'wandb.log({"step": state.global_step})'}, "train.py:7 warning"),
    bad(
        "started by plain Python, and Lightning starts the others",
        {**_lightning("index == 0"), "run.sh": "python train.py\n"},
        "model.py:21 warning",
    ),
    good("rank 0 alone", _lightning("index == 0 and self.trainer.is_global_zero")),
    good("rank 0 alone, by its number", _lightning("self.global_rank == 0")),
    good("who has a logger", _lightning("self.logger is not None and wandb.run is not None")),
    good("one process", _lightning("index == 0", "1", '"auto"')),
    good("accelerate, the main process", {"train.py": _ACCELERATE % (f"if wandb.run:\n        {_LOG}", '"wandb"')}),
    good("another tracker", {"train.py": _ACCELERATE % (_LOG, '"tensorboard"')}),
    good(
        "a callback that asks who it is",
        {"train.py": _HF % "if state.is_world_process_zero:\n            wandb.log({'step': state.global_step})"},
    ),
)
