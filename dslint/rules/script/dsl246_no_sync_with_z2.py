"""`no_sync()` of an engine whose gradients are partitioned.

**What.** `engine.no_sync()`, or `no_sync()` of a model that accelerate turned into a DeepSpeed engine, in a run at
ZeRO stage 2 or 3.

**Why it hurts.** Stages 2 and 3 partition the gradients by reducing them; `no_sync` asks to leave the reduction out.
The engine refuses with an `AssertionError` when the context is entered: the job dies at the first accumulation step,
after the model was loaded. Releases before 0.16.0 have no such method and raise an `AttributeError`.

**Fix.** Remove the context and let the engine accumulate: `gradient_accumulation_steps` in the config, and
`engine.backward` and `engine.step` for every micro batch. Stage 1 allows `no_sync`.

**When it stays quiet.** The stage is 0 or 1, or not known; the call is in a branch for other stages;
`accelerator.no_sync(model)`, which accelerate leaves out itself at stages 2 and 3; `no_sync` of a
`DistributedDataParallel` model.

**Evidence.** `DeepSpeedEngine.no_sync` of 0.19.8 asserts `not zero_optimization_partition_gradients()`. Two gloo ranks:
stages 2 and 3 raise on both, stages 0 and 1 pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL246",
    name="no-sync-with-z2",
    kind="script",
    severity=Severity.ERROR,
    summary="`no_sync()` of an engine at ZeRO stage 2 or 3, which refuses it",
    markers=(r"\.no_sync", r"deepspeed|accelerat"),
    references=(
        "DeepSpeedEngine.no_sync in deepspeed/runtime/engine.py",
        "https://deepspeed.readthedocs.io/en/latest/training.html#gradient-accumulation",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on `no_sync()` of an engine whose stage is 2 or 3."""
    libraries = run.machine.libraries
    for found in run.happenings("no-sync"):
        event = found.event
        owner, _, name = event.api.rpartition(".")
        if name != "no_sync" or not libraries.is_class(owner, "engine", "prepared-model"):
            continue
        maker = run.stages.maker(event.receiver)
        here = run.stages.at(found, maker)
        if maker is None or not here.is_among(2, 3):
            continue
        shown = f"ZeRO stage {here.stage}" if here.stage is not None else "ZeRO stages 2 and 3"
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(event.module, event.node)}` raises under {shown}: the reduction of gradients cannot be"
            " skipped",
            hint="Remove the context and set `gradient_accumulation_steps` in the DeepSpeed config",
            related=here.places,
            facts={"stage": here.stage},
        )


_TRAIN = """\
import deepspeed

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def train(model, batches):
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for step, batch in enumerate(batches):
        if step %% 4:
            with engine.no_sync():
                engine.backward(engine(batch))
        else:
            engine.backward(engine(batch))
            engine.step()
"""

EXAMPLES = (
    bad("accumulation by hand at stage 2", {"train.py": _TRAIN % 2}, at="train.py:10 error"),
    bad(
        "a model that accelerate prepares with a plugin of stage 3",
        {
            "train.py": """\
from accelerate import Accelerator, DeepSpeedPlugin

plugin = DeepSpeedPlugin(zero_stage=3, gradient_accumulation_steps=4)
accelerator = Accelerator(deepspeed_plugin=plugin)


def train(model, optimizer, batches):
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        with model.no_sync():
            accelerator.backward(model(batch))
"""
        },
        at="train.py:10 error",
    ),
    good("stage 1 keeps whole gradients", {"train.py": _TRAIN % 1}),
    good(
        "the context is for the lower stages only",
        {
            "train.py": """\
import contextlib

import deepspeed

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}}


def train(model, batches):
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for batch in batches:
        with engine.no_sync() if engine.zero_optimization_stage() < 2 else contextlib.nullcontext():
            engine.backward(engine(batch))
        engine.step()
"""
        },
    ),
    good(
        "accelerate leaves it out itself",
        {
            "train.py": """\
from accelerate import Accelerator, DeepSpeedPlugin

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))


def train(model, optimizer, batches):
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        with accelerator.no_sync(model):
            accelerator.backward(model(batch))
        optimizer.step()
"""
        },
    ),
    good(
        "a DDP model beside the engine",
        {
            "train.py": """\
import deepspeed
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}}


def train(teacher, student, batch):
    engine, _, _, _ = deepspeed.initialize(model=student, model_parameters=student.parameters(), config=CONFIG)
    teacher = DDP(teacher)
    with teacher.no_sync():
        teacher(batch).mean().backward()
"""
        },
    ),
)
