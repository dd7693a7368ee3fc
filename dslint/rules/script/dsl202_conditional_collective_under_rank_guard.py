"""Some ranks make a call that all ranks must make once parameters are partitioned.

**What.** `trainer.save_model(...)`, `trainer.push_to_hub(...)`, `accelerator.save_state(...)`,
`accelerator.get_state_dict(...)`, `engine.save_16bit_model(...)`, a forward or `generate` of the trained model, or
`with deepspeed.zero.GatheredParameters(...)` is under a test that only some ranks pass.

**Why it hurts.** With plain data parallelism and ZeRO up to stage 2 every rank holds all weights, and nothing happens.
Under ZeRO stage 3 (and fully sharded data parallelism) each of these calls gathers the partitions of all ranks: rank 0
waits for the others until the process-group timeout. Worse, after a lonely forward the call returns a value, because
its gathering pairs up with the *next training step* of the other ranks, which then hangs or reads foreign weights. The
script has worked for months, and is still the day somebody passes another config. `accelerator.save_state` begins
the checkpoint of a DeepSpeed engine with a barrier at every stage: it waits as soon as DeepSpeed is used at all.

**Fix.** Call it on every rank: the trainer and the engine choose the writing rank themselves. Keep printing, logging
and uploading by hand under the test.

**When it stays quiet.** The stage is known to be below 3 (but for `save_state`); the other ranks make the same call on
their own path; the helper under the test runs no such call; the model is a copy that
nobody prepared (`ema`); something unknown may let the other ranks in (`is_main or
uses_sharding`). The severity follows what is known: *error* when stage 3 is known (from the launch command and its
config, or from the script), for `save_state` when any stage is; *warning* for saving when the script uses DeepSpeed
and its stage is not known; *info* for a forward then, and when nothing in the project speaks of DeepSpeed.

**Evidence.** Two ranks: `trainer.save_model` under `is_world_process_zero()` passes with DDP and ZeRO-2 and hangs
with ZeRO-3 until it is killed (transformers 5.23, deepspeed 0.19.8; `Trainer.save_model` calls
`accelerator.get_state_dict`); a forward on rank 0 passes with ZeRO-2 and ends in the timeout of the next training step
with ZeRO-3; `save_16bit_model` and `GatheredParameters` on rank 0 time out with ZeRO-3.
`accelerator.save_state` on rank 0 passes with DDP and waits in the barrier of `save_checkpoint` at stages 0, 2 and 3
(accelerate 1.15).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt
from dslint.python.queries.waits import DEEPSPEED, FSDP, ZERO3, kind
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.ranks.lonelycalls import dedented, family, lonely, name
from dslint.rules.zero.stagetests import ALL as ZERO_STAGES

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.python.events import Event
    from dslint.python.queries.parting import Parting
    from dslint.rules.runs import RunQuery
    from dslint.rules.zero.stages import StageHere

META = RuleMeta(
    code="DSL202",
    name="conditional-collective-under-rank-guard",
    kind="script",
    severity=Severity.ERROR,
    summary="a call that every rank must make under ZeRO stage 3 is made by some ranks only",
    fix="safe",
    markers=parted.MARKERS,
    depends_on_run=True,
    references=(
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/344",
        "https://github.com/huggingface/accelerate/issues/2912",
        "https://github.com/deepspeedai/DeepSpeed/issues/6836",
        "https://github.com/lm-sys/FastChat/issues/508",
        "Trainer.save_model in transformers/trainer.py",
    ),
)
_HINTS = {
    "save_model": "Call `save_model` on every rank: the trainer writes from the main rank itself",
    "push_to_hub": "Call `push_to_hub` on every rank: the trainer uploads from the main rank itself",
    "save_state": "Call `save_state` on every rank: accelerate chooses the writing ranks itself",
    "get_state_dict": "Gather the state on every rank, then write it on one",
    "forward": "Run the model on every rank, and use the result on one",
    "generate": "Generate on every rank, and print the result on one",
}

# A file of which such a line speaks uses DeepSpeed, at a stage that may be any.
_SPEAKS = re.compile(
    r"(?m)^\s*(?:from|import)\s+deepspeed\b|HfDeepSpeedConfig|DeepSpeedPlugin|integrations[\w.]* import.*deepspeed"
)
_SHARDS = re.compile(r"full_shard|shard_grad_op|hybrid_shard", re.I)
_RUNS = frozenset({"forward", "generate", "chat"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield lonely calls that wait only where parameters are divided; the stage decides how sure it is."""
    left: set[int] = set()
    for parting in lonely(run, is_supposed=True):
        wait = run.supposed.of(parting.event)
        if wait is None or not wait.needs or id(parting.test) in left:
            continue
        found = next(h for h in run.occurrences(*parting.event.tags) if h.event is parting.event)
        here = run.stages.at(found)
        if not here.may_be(*((3,) if wait.needs == ZERO3 else ZERO_STAGES)) or _may_let_in(parting):
            continue
        if parting.exit:
            left.add(id(parting.test))
        yield _finding(run, parting, wait.needs, here)


def _may_let_in(parting: Parting) -> bool:
    """`is_main_process or uses_sharding`: what else is asked may be what decides over the stage."""
    test = parting.test
    if not isinstance(test, Alt):
        return False
    callers = test.then_lanes if parting.on_true else test.else_lanes
    return callers == test.then_lanes | test.else_lanes


def _finding(run: RunQuery, parting: Parting, needs: str, here: StageHere) -> Finding:
    module, node = parted.place(parting)
    key = parted.key(parting.event)
    who, others = parted.sides(run, parting)
    sharded = () if here.stage is not None else _fsdp(run)
    severity = Severity.ERROR if needs == FSDP else _severity(run, parting.event, here, is_fsdp=bool(sharded))
    under = "with FSDP" if sharded else "with DeepSpeed" if needs == DEEPSPEED else f"under {ZERO3}"
    what = f"`{parted.called(run, parting)}` needs every rank {under}"
    if parting.via is not None:
        what = f"`{parted.called(run, parting)}` runs `{key}`, which needs every rank {under}"
    if severity is Severity.ERROR:
        effect = f"{others}, and the job hangs"
    elif sharded:
        effect = "the job hangs when the full state is gathered"
    elif needs == DEEPSPEED:
        effect = "a hang with DeepSpeed at any stage, harmless with plain data parallelism"
    else:
        effect = "a hang at stage 3, which may be in use"
    return run.finding(
        META,
        module,
        node,
        f"{what}, but {who}: {effect}",
        hint=_HINTS.get(key, "Call it on every rank and keep only logging under the test"),
        related=(
            parted.test_place(run, parting),
            *sharded,
            *parted.event_place(run, parting, "runs it"),
            *here.places,
        ),
        fix=dedented(run, parting),
        severity=severity,
        varies=parting.varies,
        origin=parted.origin(run, parting),
        facts={"collective": name(parting.event), "family": family(parting.event), "stage": _stage(needs, here)},
    )


def _stage(needs: str, here: StageHere) -> int:
    """Return the stage at which an experiment shows it."""
    return here.stage if here.stage is not None and needs == DEEPSPEED else 3


def _severity(run: RunQuery, event: Event, here: StageHere, *, is_fsdp: bool) -> Severity:
    if here.stage is not None:
        return Severity.ERROR
    # Who runs the model on one rank knows that every rank holds all of it; who saves thinks of files.
    is_save = kind(event) not in _RUNS
    return Severity.WARNING if is_fsdp or (is_save and _speaks_of_deepspeed(run)) else Severity.INFO


def _speaks_of_deepspeed(run: RunQuery) -> bool:
    if run.context.zero_stage.is_unknown or any("makes-engine" in h.event.tags for h in run.happenings("makes-engine")):
        return True
    modules = {entry.module for entry in run.entries}
    if any(module.search(_SPEAKS) for module in modules):
        return True
    configs = (h.event.config for h in run.happenings("training-arguments"))
    return any(config is not None and config.constants not in ((None,), (False,)) for config in configs)


def _fsdp(run: RunQuery) -> tuple[Location, ...]:
    """Return what says that FSDP shards the parameters, under the Trainer or accelerate."""
    for found in run.happenings("training-arguments", "starts-group"):
        event = found.event
        name = "fsdp" if "training-arguments" in event.tags else "fsdp_plugin"
        value, node = event.arguments.get(name), event.nodes.get(name, event.node)
        if value is None or (name == "fsdp_plugin" and event.api != "accelerate.Accelerator"):
            continue
        is_plugin = any(isinstance(atom, Instance) and atom.cls for atom in value.atoms)
        if is_plugin if name == "fsdp_plugin" else _SHARDS.search(str(value.constants)):
            return (run.location(event.module, node, "FSDP"),)
    return ()


_TRAINER = """\
from transformers import Trainer, TrainingArguments

CONFIG = {
    "train_batch_size": 8,
    "zero_optimization": {"stage": STAGE, "stage3_gather_16bit_weights_on_model_save": True},
}


def main(model, data, output):
    args = TrainingArguments(output_dir=output, deepspeed=CONFIG)
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
"""
_GUARDED = """\
    if trainer.is_world_process_zero():
        trainer.save_model(output)
"""
_ACCELERATE = """\
from accelerate import Accelerator, DeepSpeedPlugin


def main(model, output):
    plugin = DeepSpeedPlugin(zero_stage=STAGE)
    accelerator = Accelerator(deepspeed_plugin=plugin)
    model = accelerator.prepare(model)
    accelerator.print("saving")
    if accelerator.is_main_process:
        accelerator.save_state(output)
"""
_ENGINE = """\
import deepspeed
import torch.distributed as dist


def evaluate(model, batch, config):
    model_engine, _, _, _ = deepspeed.initialize(model=model, config=config)
"""

_SHARDED = """\
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin

from saving import Saver


def main(loader):
    model = torch.nn.Linear(4, 4)
    accelerator = Accelerator(%s)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    saver = Saver(accelerator)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    saver(model)
"""
_SAVER = """\
import torch


class Saver:
    def __init__(self, accelerator):
        self.accelerator = accelerator

    def __call__(self, model):
        if not self.accelerator.is_main_process:
            return
        torch.save(self.accelerator.get_state_dict(model), "weights.pt")
"""
_PLUGIN = "fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1)"

EXAMPLES = (
    bad(
        "the weights of FSDP are gathered, in another file",
        {"train.py": _SHARDED % _PLUGIN, "saving.py": _SAVER},
        "saving.py:11 error",
    ),
    bad(
        "the same where nothing says how it is launched",
        {"train.py": _SHARDED % "", "saving.py": _SAVER},
        "saving.py:11 info",
    ),
    bad(
        "The model is saved by rank 0 only, under ZeRO stage 3",
        {"train.py": _TRAINER.replace("STAGE", "3") + _GUARDED},
        "train.py:14",
        fixed={"train.py": _TRAINER.replace("STAGE", "3") + "    trainer.save_model(output)\n"},
    ),
    bad(
        "A test forward on rank 0, with a config that is not in the file",
        {"train.py": _ENGINE + "    if dist.get_rank() == 0:\n        print(model_engine(batch))\n"},
        "train.py:8 info",
    ),
    bad(
        "Nothing says whether DeepSpeed is used: worth knowing",
        {
            "train.py": """\
from transformers import Trainer


def main(model, args, data):
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.push_to_hub()
"""
        },
        "train.py:8 info",
    ),
    bad(
        "`save_state` of accelerate waits at every stage",
        {"train.py": _ACCELERATE.replace("STAGE", "2")},
        "train.py:10",
    ),
    good(
        "A copy that nobody prepares: every rank holds all of it",
        {
            "train.py": """\
import copy

from accelerate import Accelerator, DeepSpeedPlugin


def main(model, data):
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))
    ema = copy.deepcopy(model)
    model, data = accelerator.prepare(model, data)
    if accelerator.is_main_process:
        accelerator.save_model(ema, "ema")
"""
        },
    ),
    good(
        "asks for a stage that this run does not have",
        {"train.py": _ACCELERATE.replace("STAGE", "2").replace("if acc", "if plugin.zero_stage == 3 and acc")},
    ),
    bad(
        "The Trainer shards the model with FSDP",
        {
            "train.py": """\
from transformers import Trainer, TrainingArguments


def main(model, data, output):
    args = TrainingArguments(output_dir=output, fsdp="full_shard auto_wrap")
    trainer = Trainer(model=model, args=args, train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model(output)
"""
        },
        "train.py:9 warning",
    ),
    good(
        "ZeRO stage 2: every rank holds all weights",
        {"train.py": _TRAINER.replace("STAGE", "2") + _GUARDED},
    ),
    good(
        "Every rank saves, one prints",
        {
            "train.py": _TRAINER.replace("STAGE", "3")
            + "    trainer.save_model(output)\n    if trainer.is_world_process_zero():\n        print(output)\n"
        },
    ),
    good(
        "All ranks save where the models are sharded",
        {
            "train.py": """\
from accelerate import Accelerator


def main(config, models):
    accelerator = Accelerator()
    accelerator.prepare(*models)
    if accelerator.is_main_process or config.use_deepspeed:
        accelerator.save_state(config.output)
"""
        },
    ),
    good(
        "With DeepSpeed all ranks save; without it one does",
        {
            "save.py": """\
import torch
from transformers import Trainer


def safe_save_model(trainer: Trainer, output):
    if trainer.deepspeed:
        torch.cuda.synchronize()
        trainer.save_model(output)
        return
    state = trainer.model.state_dict()
    if trainer.args.should_save:
        trainer._save(output, state_dict=state)
"""
        },
    ),
)
