"""More is asked of `logger.experiment` than its dummy on other ranks than 0 has.

**What.** `logger.experiment.config.update(settings)`, or another attribute of an attribute of `experiment`, on every
rank of a Lightning trainer with several processes. With accelerate: `accelerator.get_tracker("wandb").run`, or another
attribute of the tracker, on every rank.

**Why it hurts.** Only the main process has a run of the tracker. In the others `experiment` is a dummy whose
attributes are all functions that do nothing: `experiment.log(...)` works, `experiment.config.update(...)` raises
`AttributeError: 'function' object has no attribute 'update'`, and the processes that DDP starts die. `get_tracker`
gives them a stub `GeneralTracker`, which has no `run`, no `writer` and no `log_images`.

**Fix.** `if rank_zero_only.rank == 0:` around it, a function with `@rank_zero_only`, or
`logger.log_hyperparams(settings)`. With accelerate: `if accelerator.is_main_process:` around it, or `accelerator.log`.

**When it stays quiet.** A trainer of one process, or one whose strategy is not certain; code that only the main
process reaches; a method of `experiment` itself; `log` and `store_init_configuration` of a tracker of accelerate, and
what is tried or asked for by `hasattr`.

**Evidence.** lightning 2.6.6, `_DummyExperiment` in lightning/fabric/loggers/logger.py: `__getattr__` returns `nop`.
accelerate 1.15, `Accelerator.get_tracker`: `GeneralTracker(_blank=True)` where no tracker was made, which is everywhere
but on the main process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.varies import RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several, is_one_process, trainers
from dslint.rules.training.trackers import beyond_blank

META = RuleMeta(
    code="DSL645",
    name="dummy-experiment-used",
    kind="script",
    severity=Severity.WARNING,
    summary="`logger.experiment` is a dummy on other ranks than 0, and what is asked of it raises",
    markers=(r"\.experiment\.\w+(?:\.|\[)|get_tracker", r"lightning|accelerat"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/13166",
        "https://github.com/wandb/wandb/issues/9091",
    ),
    depends_on_run=True,
    no_experiment="needs Lightning, which the experiments do not install",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `experiment.name.other`, and member of a tracker, that ranks without a run come to."""
    if is_one_process(run):
        return
    for event in beyond_blank(run):
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(event.module, event.node)}` raises on other ranks than 0: their tracker is a stub",
            hint="Do it where `accelerator.is_main_process` holds, or call `accelerator.log`",
            related=run.origin(event.receiver, "only the main process gets a tracker"),
        )
    made = trainers(run)
    if not made or not all(map(has_several, made)):
        return
    for found in run.happenings("main-process-experiment"):
        event = found.event
        if found.entry.kind != "script" or event.may or event.varies & RANK or event.lanes != run.machine.worlds.full:
            continue
        used = _beyond(event)
        if used is not None:
            yield run.finding(
                META,
                event.module,
                used,
                f"`{run.text(event.module, used)}` raises on other ranks than 0: `experiment` is a stub there",
                hint="Do it on rank 0 only, or call `logger.log_hyperparams`",
                related=(run.location(made[0].module, made[0].node, "trains in several processes"),),
            )


def _beyond(event: Event) -> ast.AST | None:
    """Return the expression that takes something of an attribute of `experiment`."""
    parents = event.module.parents
    first = parents.get(event.node)
    if not isinstance(first, ast.Attribute):
        return None
    second = parents.get(first)
    is_of_first = isinstance(second, ast.Attribute | ast.Subscript) and second.value is first
    return second if is_of_first else None


_SCRIPT = """\
import lightning as L
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from net import Net


@rank_zero_only
def note(logger, settings):
    logger.experiment.config.update(settings)


def main(loader, settings):
    logger = WandbLogger(project="x")
    %s
    trainer = L.Trainer(logger=logger, %s)
    trainer.fit(Net(), loader)


if __name__ == "__main__":
    main(load(), {})
"""
_UPDATE = "logger.experiment.config.update(settings)"
_DDP = 'devices=4, strategy="ddp"'
_TRACKED = """\
import json

from accelerate import Accelerator


class Status:
    def __init__(self, tracker):
        self.tracker = tracker

    def show(self, image):
        self.tracker.log_images({"sample": image})


def main(model, loader, settings):
    accelerator = Accelerator(log_with="wandb")
    model, loader = accelerator.prepare(model, loader)
    accelerator.init_trackers("project", config=settings)
    %s
    for batch in loader:
        accelerator.backward(model(batch).mean())
"""

EXAMPLES = (
    bad(
        "the run of a tracker of accelerate",
        {"train.py": _TRACKED % 'tracker = accelerator.get_tracker("wandb")\n    print(tracker.run.url)'},
        "train.py:19 warning",
    ),
    bad(
        "the writer of a tracker",
        {"train.py": _TRACKED % 'accelerator.get_tracker("wandb", unwrap=True).add_image("x", settings)'},
        "train.py:18 warning",
    ),
    bad(
        "a tracker that an object keeps",
        {"train.py": _TRACKED % 'Status(accelerator.get_tracker("wandb")).show(settings)'},
        "train.py:11 warning",
    ),
    good(
        "a tracker of the main process",
        {
            "train.py": _TRACKED % "if accelerator.is_main_process:\n"
            '        print(accelerator.get_tracker("wandb").run.url)'
        },
    ),
    good(
        "what the blank tracker takes, too",
        {"train.py": _TRACKED % 'accelerator.get_tracker("wandb").store_init_configuration(settings)'},
    ),
    bad(
        "on every rank",
        {"train.py": _SCRIPT % ("logger.experiment.config.update(settings)", _DDP)},
        at="train.py:15 warning",
    ),
    bad(
        "started by plain Python, and Lightning starts the others",
        {"train.py": _SCRIPT % (_UPDATE, _DDP), "run.sh": "python train.py\n"},
        at="train.py:15 warning",
    ),
    bad("an item", {"train.py": _SCRIPT % ("logger.experiment.config['n'] = 1", _DDP)}, at="train.py:15 warning"),
    good("a method of it", {"train.py": _SCRIPT % ("logger.experiment.log({'n': 1})", _DDP)}),
    good("a function for rank 0", {"train.py": _SCRIPT % ("note(logger, settings)", _DDP)}),
    good(
        "on rank 0",
        {
            "train.py": _SCRIPT
            % ("if rank_zero_only.rank == 0:\n        logger.experiment.config.update(settings)", _DDP)
        },
    ),
    good("one process", {"train.py": _SCRIPT % (_UPDATE, "devices=1")}),
)
