"""`train_batch_size` of a DeepSpeed config is micro batch times accumulation steps, without the number of processes.

**What.** A config that is a dict of the script states all of the batch: `train_batch_size` is computed from the micro
batch and the accumulation steps alone (or is the micro batch, where no steps are stated).

**Why it hurts.** DeepSpeed asserts that `train_batch_size` is micro batch x steps x number of processes. It holds for
one process. With more, every rank stops when the engine is made, after the model is loaded: `AssertionError: Check
batch related parameters`. Under the Trainer it is a `ValueError` of values that do not match.

**Fix.** Multiply with the number of processes, or leave `train_batch_size` out: DeepSpeed works it out.

**When it stays quiet.** One process; a number in the product that is not one of the other two; `"auto"`; numbers that
are written out (a config for one GPU, and DSL130 compares them with the launch command); a config that is a file.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: both stop; with the number of processes in the product they train.
`_batch_assertion` in deepspeed/runtime/config.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.python.events import Event
from dslint.python.queries.factors import Factors
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.zero.engineconfigs import setting_of

META = RuleMeta(
    code="DSL608",
    name="batch-product-without-world",
    kind="script",
    severity=Severity.ERROR,
    summary="`train_batch_size` is micro batch times steps, without the number of processes",
    markers=(r"deepspeed|DeepSpeed|accelerat",),
    references=("https://github.com/OpenRLHF/OpenRLHF/issues/346",),
    depends_on_run=True,
)
_READERS = ("makes-engine", "training-arguments", "configures")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `train_batch_size` that holds for one process only."""
    if run.context.is_one_process:
        return
    factors = Factors(run.machine.program.modules(), (tree for _, tree in run.trees()))
    seen: set[int] = set()
    for found in run.occurrences(*_READERS):
        event, settings = found.event, found.event.settings
        if settings is None or event.may or not {f"/{TRAIN}", f"/{MICRO}"} <= settings.items.keys():
            continue
        train, micro, steps = (setting_of(run, event, f"/{key}") for key in (TRAIN, MICRO, STEPS))
        if train is None or micro is None or id(train[1]) in seen or _is_number(train[1]):
            continue
        if steps is None and not settings.lacks(f"/{STEPS}"):
            continue
        product = sorted([*factors.of(*micro), *(factors.of(*steps) if steps is not None else ())])
        if factors.of(*train) == product and "'auto'" not in product:
            seen.add(id(train[1]))
            yield _finding(run, event, train, micro if steps is None else None)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant)


def _finding(run: RunQuery, event: Event, train: tuple[Module, ast.AST], alone: object) -> Finding:
    module, node = train
    what = "the micro batch" if alone is not None else "micro batch times accumulation steps"
    is_sure = run.context.world_size.get_or(0) > 1
    found = run.finding(
        META,
        module,
        node,
        f"`{TRAIN}` is {what}, without the number of processes: DeepSpeed stops with several processes",
        hint=f"Multiply it with the number of processes, or leave `{TRAIN}` out",
        related=(run.location(event.module, event.node, "the config is read here"),) if node is not event.node else (),
        severity=Severity.ERROR if is_sure else Severity.WARNING,
    )
    return replace(found, pointer=f"/{TRAIN}")


_CONFIGS = """\
def make(options, world):
    return {
        "train_batch_size": %s,
        "train_micro_batch_size_per_gpu": options.micro,
        "gradient_accumulation_steps": options.steps,
        "optimizer": {"type": "AdamW"},
    }
"""
_MAIN = """\
import deepspeed
import torch.distributed as dist

from configs import make


def main(model, options):
    deepspeed.init_distributed()
    engine, _, loader, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=make(options, dist.get_world_size())
    )
"""
_TRAINER = """\
from transformers import Trainer, TrainingArguments


def main(model, data, micro, steps):
    total = %s
    config = {"zero_optimization": {"stage": 2}}
    config["train_micro_batch_size_per_gpu"] = micro
    config["gradient_accumulation_steps"] = steps
    config["train_batch_size"] = total
    args = TrainingArguments(
        "out", per_device_train_batch_size=micro, gradient_accumulation_steps=steps, deepspeed=config
    )
    Trainer(model=model, args=args, train_dataset=data).train()
"""


def _files(product: str) -> dict[str, str]:
    return {"configs.py": _CONFIGS % product, "train.py": _MAIN}


EXAMPLES = (
    bad("a config that another file makes", _files("options.micro * options.steps"), "configs.py:3 warning"),
    bad(
        "the number of processes is known", _files("options.micro * options.steps"), "configs.py:3 error", world_size=8
    ),
    bad("a variable, for the Trainer", {"train.py": _TRAINER % "int(steps * micro)"}, "train.py:9 warning"),
    good("with the number of processes", _files("options.micro * options.steps * world")),
    good("a batch of its own", _files("options.batch")),
    good("one process", _files("options.micro * options.steps"), world_size=1),
    good("the Trainer fills it in", {"train.py": _TRAINER % '"auto"'}),
)
