"""Some ranks make a call that all ranks must make once parameters are partitioned.

**What.** `trainer.save_model(...)`, `trainer.push_to_hub(...)`, `accelerator.save_state(...)`,
`accelerator.get_state_dict(...)`, `engine.save_16bit_model(...)`, a forward or `generate` of the trained model, or
`with deepspeed.zero.GatheredParameters(...)` stands behind a test that only some ranks pass.

**Why it hurts.** With plain data parallelism and ZeRO up to stage 2 every rank holds all weights, and nothing happens.
Under ZeRO stage 3 (and fully sharded data parallelism) each of these calls gathers the partitions of all ranks: rank 0
waits for the others until the process-group timeout. Worse, after a lonely forward the call returns a value, because
its gathering pairs up with the *next training step* of the other ranks, which then hangs or reads foreign weights. The
script has worked for months, and stands still the day somebody passes another config. `accelerator.save_state` begins
the checkpoint of a DeepSpeed engine with a barrier at every stage: it waits as soon as DeepSpeed is used at all.

**Fix.** Call it on every rank: the trainer and the engine choose the writing rank themselves. Keep printing, logging
and uploading by hand behind the test.

**When it stays quiet.** The stage is known to be below 3 (but for `save_state`); the other ranks make the same call on
their own path; the helper behind the test runs no such call; the model is a copy that
nobody prepared (`ema`); something unknown may let the other ranks in (`is_main or
uses_sharding`). The severity follows what is known: *error* when stage 3 is known (from the launch command and its
config, or from the script), for `save_state` when any stage is; *warning* for saving when the script uses DeepSpeed
and its stage is not known; *info* for a forward then, and when nothing in the project speaks of DeepSpeed.

**Evidence.** Two ranks: `trainer.save_model` behind `is_world_process_zero()` passes with DDP and ZeRO-2 and hangs
with ZeRO-3 until it is killed (transformers 5.23, deepspeed 0.19.8; `Trainer.save_model` calls
`accelerator.get_state_dict`); a forward on rank 0 passes with ZeRO-2 and ends in the timeout of the next training step
with ZeRO-3; `save_16bit_model` and `GatheredParameters` on rank 0 time out with ZeRO-3.
`accelerator.save_state` on rank 0 passes with DDP and waits in the barrier of `save_checkpoint` at stages 0, 2 and 3
(accelerate 1.15).
"""

from __future__ import annotations

import re
from functools import cached_property

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.collective.vocabulary import GUARDED_COLLECTIVE
from dslint.model.script.dotted import keyword, last_name
from dslint.model.script.precheck import guards_any_call, has_guarded_collective
from dslint.model.script.ranks.rankset import ANY
from dslint.model.script.traces.divergence import Divergence
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.lonely import dedented, guard_place, lonely_sides
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL202",
    name="conditional-collective-under-rank-guard",
    kind="script",
    severity=Severity.ERROR,
    summary="a call that every rank must make under ZeRO stage 3 is made by some ranks only",
    fix="safe",
    markers=GUARDED_COLLECTIVE,
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

precheck = has_guarded_collective
precheck_imports = guards_any_call


_SHARDS = re.compile(r"full_shard|shard_grad_op|hybrid_shard", re.I)


class Check(ScriptCheck):
    """Reports lonely calls that are collective only for partitioned parameters."""

    def finish(self) -> None:
        """The stage decides how sure it is."""
        stage3 = self.ctx.zero3_evidence
        is_below = stage3.is_known and not stage3.value
        seen: set[int] = set()
        for found in self.ctx.divergences.if_sharded():
            if id(found.guard.owner) in seen or (is_below and not self._waits_below(found)):
                continue
            if self._may_let_in(found.guard.test):
                continue
            if found.guard.kind != "test":
                seen.add(id(found.guard.owner))
            self._report(found, self._severity(found))

    def _waits_below(self, found: Divergence) -> bool:
        """The call waits at the stage of this run, which is none at which parameters are partitioned."""
        return _is_any_stage(found) and self.ctx.zero.at(found.op.call).may_be(0, 1, 2)

    def _stage(self, found: Divergence) -> int:
        """At which an experiment shows it."""
        stage = self.ctx.stage
        return stage if stage is not None and (stage == 3 or _is_any_stage(found)) else 3

    def _may_let_in(self, test: cst.CSTNode) -> bool:
        """``is_main_process or uses_sharding``: what else is asked may be what decides over the stage."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._may_let_in(test.expression)
        if not isinstance(test, cst.BooleanOperation):
            return False
        told = [self.ctx.guards.branches(side) for side in (test.left, test.right)]
        lets_in = isinstance(test.operator, cst.Or) and ANY in told and any(yes.is_partial for yes, _ in told)
        return lets_in or any(map(self._may_let_in, (test.left, test.right)))

    def _severity(self, found: Divergence) -> Severity:
        stage3 = self.ctx.zero3_evidence
        if stage3.is_known:
            return Severity.ERROR
        # Who runs the model on one rank knows that every rank holds all of it; who saves thinks of files.
        is_save = found.op.key not in ("forward", "generate", "chat")
        return Severity.WARNING if (stage3.is_unknown and is_save) or self._sharded is not None else Severity.INFO

    @cached_property
    def _sharded(self) -> cst.CSTNode | None:
        """What says in this file that FSDP shards the parameters, under the Trainer or accelerate."""
        for call in self.ctx.tree.every(cst.Call):
            if last_name(call.func) == "FullyShardedDataParallelPlugin":
                return call
            given = keyword(call, "fsdp")
            if (
                given is not None
                and self.ctx.kind(call) == "training_arguments"
                and _SHARDS.search(self.ctx.text(given))
            ):
                return given
        return None

    def _report(self, found: Divergence, severity: Severity) -> None:
        op, guard = found.op, found.guard
        name = self.ctx.text(op.call.func)
        who, others = lonely_sides(self.ctx, found)
        related = [guard_place(self.ctx, guard)]
        under = "with DeepSpeed" if _is_any_stage(found) else "under ZeRO stage 3"
        sharded = self._sharded if severity is Severity.WARNING else None
        if sharded is not None:
            under = "where FSDP shards the model"
            related.append(self.ctx.location(sharded, "FSDP"))
        what = f"`{name}` must be called by every rank {under}"
        if op.through is not None:
            what = f"`{name}` runs `{op.key}`, which needs every rank {under}"
            home = op.foreign.context if op.foreign is not None else self.ctx
            related.append(home.location(op.through.name, "runs it"))
        if severity is Severity.ERROR:
            effect = f"{others}, and the job hangs until the process-group timeout"
        elif sharded is not None:
            effect = f"{others}, and the job hangs when the full state is gathered"
        elif _is_any_stage(found):
            effect = "harmless with plain data parallelism, a hang with DeepSpeed at any stage"
        else:
            effect = "harmless up to stage 2, a hang with stage 3, and the stage of this run is not known"
        self.report(
            op.call,
            f"{what}, but {who}: {effect}",
            hint=_HINTS.get(op.key, "Call it on every rank and keep only logging behind the test"),
            related=(*related, *self.ctx.zero3_evidence.origins),
            fix=dedented(self.ctx, found),
            severity=severity,
            facts={"collective": op.key, "family": op.collective.family, "stage": self._stage(found)},
        )


def _is_any_stage(found: Divergence) -> bool:
    """`accelerator.save_state` begins `save_checkpoint` of an engine with a barrier, partitioned or not."""
    return found.op.key == "save_state" and found.op.collective.family == "accelerate"


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

EXAMPLES = (
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
