"""**What.** A script of a distributed job calls `wandb.init` on every rank.

**Why it hurts.** Each rank makes a run of its own: eight runs with the same loss for one training, and with many ranks
the service answers late or refuses, while the other ranks wait in their next collective.

**Fix.** `if rank == 0: wandb.init(...)`, or `mode="disabled"` on the others; the Hugging Face Trainer and
`accelerator.init_trackers` do so by themselves.

**When it stays quiet.** With a test of the rank around the call or every call of the function that holds it, with
`group=`, `mode=` or `name=` of the rank's own, which say that a run a rank is wanted; in scripts of a Hugging Face
Trainer that neither a command starts in several processes nor their own code expects there; in sweeps, in runs that
train nothing, in files that join no job.

**Evidence.** Documentation of Weights & Biases, "Log distributed training experiments": log from rank 0 only, or from
all ranks with `group`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.varies import LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import arrivals, every_rank_comes
from dslint.rules.ranks.groups import called
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL265",
    name="wandb-on-all-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="Every rank of the job starts a run of Weights & Biases",
    markers=(r"wandb",),
    references=("https://docs.wandb.ai/guides/track/log/distributed-training/",),
    depends_on_run=True,
    no_experiment="it takes an account and a network",
)

# With these a Trainer is likely, which starts the run by itself.
_TRAINERS = re.compile(r"(?m)^\s*(?:from|import)\s+(?:transformers|trl|lightning|pytorch_lightning)\b")
# A sweep starts a run for each of its trials; with these variables a run is one that nobody sees.
_SWEEPS = re.compile(r"wandb\.(?:agent|sweep)\b|WANDB_(?:MODE|DISABLED)")
_TRAINS = re.compile(r"Trainer\b|TrainingArguments|[Ll]ightning")


def _has_trainer(text: str) -> bool:
    """Return whether code imports such a library, and not for its models alone."""
    return _TRAINERS.search(text) is not None and _TRAINS.search(text) is not None


def _has_own_name(event: Event) -> bool:
    """Return whether each rank gives its run a name or a folder of its own: then a run a rank is wanted."""
    own = (event.snapshot.get(name, (0, 0, frozenset()))[0] for name in ("name", "id", "job_type", "dir"))
    return any(varies & (RANKED | LOST) for varies in own)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where nothing keeps the other ranks of the job away."""
    if run.context.is_one_process and not run.has("spawns"):
        return
    found = _of_loops(run) if run.has("backward") else _of_trainers(run)
    for event in found:
        given = {name for name, value in event.arguments.items() if value.constants != (None,)}
        if not event.api.startswith("wandb.") or event.open or given & {"group", "mode"} or _has_own_name(event):
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{called(run, event)}` runs on every rank: one run a process, and a service that answers late stalls the"
            " job",
            hint="Call it on rank 0 only, or pass `group=` to keep the runs together",
        )


def _of_loops(run: RunQuery) -> Iterator[Event]:
    """Yield the runs that each rank of a job starts, where the script itself goes through the batches."""
    for arrival in arrivals(run, "starts-run"):
        modules = run.machine.program.with_imports((arrival.event.module, arrival.start.module))
        if any(_has_trainer(m.code) for m in modules):
            continue
        if arrival.start.api.startswith("accelerate.") and not run.has("prepares"):
            continue  # many make an `Accelerator` for its device or its log, in a program of one process
        yield arrival.event


def _of_trainers(run: RunQuery) -> Iterator[Event]:
    """Yield the runs that each process of a job starts before a `Trainer` does so on rank 0."""
    is_started = run.context.world_size.get_or(0) > 1 or bool(intends_several(run))
    if not is_started or not run.has("starts-run") or not run.has("trainer-train"):
        return
    if any(_SWEEPS.search(module.code) for module in run.machine.program.modules()):
        return
    told: set[int] = set()
    for entry in run.ordered:
        trains = any("trainer-train" in event.tags for event, _ in entry)
        for event, around in entry if trains else ():
            is_new = "starts-run" in event.tags and id(event.node) not in told
            if is_new and every_rank_comes(run, event, around, run.machine.worlds.full):
                told.add(id(event.node))
                yield event


_HEAD = "import torch.distributed as dist\nimport wandb\n\ndist.init_process_group('nccl')\n"
_STEP = "\n\ndef train(model, loader):\n    for x in loader:\n        model(x).sum().backward()\n\n\ntrain(net, rows)\n"
_TRAINER = """\
import wandb
from transformers import HfArgumentParser, Trainer, TrainingArguments

from tracking import start_run


def main():
    (args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    %s
    with args.main_process_first():
        rows = load_rows()
    trainer = Trainer(model=load_model(), args=args, train_dataset=rows)
    trainer.train()


main()
"""
_TRACKING = "import wandb\n\n\ndef start_run(args):\n    wandb.init(project='sft', name=args.run_name)\n"
_METHOD = """\
import wandb
from transformers import Trainer, TrainingArguments


class Tuning:
    def __init__(self, args):
        self.args = args
        if "wandb" in args.report_to:
            self.setup()

    def setup(self):
        %s

    def run(self):
        Trainer(model=load_model(), args=self.args, train_dataset=load_rows()).train()


Tuning(TrainingArguments("out", report_to="wandb", ddp_find_unused_parameters=False)).run()
"""

EXAMPLES = (
    bad("on every rank", {"train.py": _HEAD + "wandb.init(project='x')\n" + _STEP}, at="train.py:5 warning"),
    bad(
        "in a function that every rank calls",
        {"train.py": _HEAD + "\n\ndef log():\n    wandb.init(project='x')\n\n\nlog()\n" + _STEP},
        at="train.py:8",
    ),
    bad(
        "a helper of another file",
        {
            "train.py": "import torch.distributed as dist\n\nfrom logs import start\n\n"
            "dist.init_process_group('nccl')\nstart('x')\n" + _STEP,
            "logs.py": "from wandb import init as begin\n\n\ndef start(name):\n    begin(project=name)\n",
        },
        at="logs.py:5",
    ),
    good("on rank 0", {"train.py": _HEAD + "if dist.get_rank() == 0:\n    wandb.init(project='x')\n" + _STEP}),
    good(
        "in a function that rank 0 calls",
        {
            "train.py": _HEAD + "\n\ndef log():\n    wandb.init(project='x')\n\n\n"
            "if dist.get_rank() == 0:\n    log()\n" + _STEP
        },
    ),
    good("a group of runs", {"train.py": _HEAD + "wandb.init(project='x', group='run-1')\n" + _STEP}),
    good(
        "a name for each run",
        {"train.py": _HEAD + "wandb.init(project='x', name=f'a-{dist.get_rank()}')\n" + _STEP},
    ),
    good("nothing is trained", {"serve.py": _HEAD + "wandb.init(project='x')\n"}),
    good("no job", {"train.py": "import wandb\n\nwandb.init(project='x')\n"}),
    good(
        "a trainer",
        {
            "train.py": "import deepspeed\nimport wandb\nfrom transformers import Trainer\n\n"
            "wandb.init(project='x')\nTrainer(model=None).train()\n"
        },
    ),
    bad(
        "before a trainer, in a job of several processes",
        {"train.py": _TRAINER % "start_run(args)", "tracking.py": _TRACKING},
        at="tracking.py:5 warning",
    ),
    good(
        "before a trainer, in the main process",
        {"train.py": _TRAINER % "if args.process_index == 0:\n        start_run(args)", "tracking.py": _TRACKING},
    ),
    good(
        "before a trainer, where it says that it is process zero",
        {"train.py": _TRAINER % "if args.should_log:\n        start_run(args)", "tracking.py": _TRACKING},
    ),
    bad("in a class around the trainer", {"train.py": _METHOD % "wandb.init(project='sft')"}, at="train.py:12"),
    good(
        "in a class around the trainer, by the local rank",
        {"train.py": _METHOD % "if self.args.local_rank in (-1, 0):\n            wandb.init(project='sft')"},
    ),
    good("a group before a trainer", {"train.py": _METHOD % "wandb.init(project='sft', group='a')"}),
)  # fmt: skip
