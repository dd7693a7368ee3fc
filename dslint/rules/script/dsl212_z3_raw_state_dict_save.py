"""The state dict of a partitioned model is saved: it holds empty tensors.

**What.** `torch.save(model.state_dict(), ...)`, `save_file(model.state_dict(), ...)` or `model.save_pretrained(...)`
without `state_dict=`, where `model` is a DeepSpeed engine, its module, or the model of a Trainer or of
`accelerator.prepare`, in a run at ZeRO stage 3.

**Why it hurts.** At stage 3 every rank holds a part of each weight, and what stands in the module is an empty tensor.
The file is written without an error and holds nothing. It shows when somebody loads it, often after the job and its
checkpoints are gone.

**Fix.** With an engine: `engine.save_16bit_model(folder)` with `stage3_gather_16bit_weights_on_model_save`, or
`engine.save_checkpoint` and `zero_to_fp32.py`. With accelerate: `state_dict=accelerator.get_state_dict(model)`. With
the Trainer: `trainer.save_model()`. All of them must be called by every rank.

**When it stays quiet.** The stage is below 3 or not known; a branch, an early return or the caller keeps stage 3 away;
another branch of the same function saves at stage 3; inside `GatheredParameters`; `state_dict=` is passed; the state of
an optimizer or a schedule; `save_pretrained` in a script that uses PEFT, since adapters are mostly small: DeepSpeed
leaves parameters whole that have less than `stage3_param_persistence_threshold` (100,000) numbers.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: `torch.save(engine.module.state_dict())` at stage 3 gives tensors of
shape (0,), and whole ones at stages 1 and 2; `engine.module.save_pretrained` of a Llama (transformers 5.23) writes none
of its 21 weights with its shape at stage 3, and all at stage 2.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.context import Context
from dslint.model.script.quick import call_name, flat
from dslint.model.script.zero.statedstage import may_know_stage
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL212",
    name="z3-raw-state-dict-save",
    kind="script",
    severity=Severity.ERROR,
    summary="the state dict of a ZeRO stage 3 model is saved, which holds empty tensors",
    markers=(
        r"\.state_dict|\.save_pretrained",
        r"deepspeed|accelerat|trainer|Trainer",
    ),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/2413",
        "https://github.com/hiyouga/LLaMA-Factory/issues/253",
        "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
    ),
    depends_on_run=True,
)

_TRAIN = """\
import deepspeed
import torch
import torch.distributed as dist

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def train(model, batches, path):
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for batch in batches:
        engine.backward(engine(batch))
        engine.step()
%s"""
_SAVE = """\
    if dist.get_rank() == 0:
        torch.save(engine.module.state_dict(), path)
"""
_ACCELERATE = """\
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))


def train(optimizer, batches, path):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(path, is_main_process=accelerator.is_main_process%s)
"""

EXAMPLES = (
    bad("rank 0 saves the module of the engine", {"train.py": _TRAIN % (3, _SAVE)}, at="train.py:14 error"),
    bad(
        "the state dict goes through a variable and a dictionary, to safetensors",
        {
            "train.py": "from safetensors.torch import save_file\n"
            + _TRAIN
            % (
                3,
                "    state = engine.state_dict()\n    if dist.get_rank() == 0:\n"
                '        torch.save({"model": model.state_dict(), "epoch": 1}, path)\n'
                "        save_file(state, path)\n",
            )
        },
        at=("train.py:16 error", "train.py:17 error"),
    ),
    bad(
        "`save_pretrained` of a model that accelerate prepared",
        {"train.py": _ACCELERATE % ""},
        at="train.py:14 error",
    ),
    bad(
        "the model of a Trainer, after training",
        {
            "train.py": """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

ZERO = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": ZERO}


def main(dataset):
    args = TrainingArguments("out", deepspeed=CONFIG)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(model=model, args=args, train_dataset=dataset)
    trainer.train()
    if trainer.is_world_process_zero():
        model.save_pretrained("out/final")
"""
        },
        at="train.py:13 error",
    ),
    good(
        "adapters of PEFT, which are below the persistence threshold",
        {"train.py": "from peft import LoraConfig, get_peft_model\n" + _ACCELERATE % ""},
    ),
    good("stage 2 keeps whole weights", {"train.py": _TRAIN % (2, _SAVE)}),
    good(
        "the state dict is gathered by accelerate",
        {"train.py": _ACCELERATE % ", state_dict=accelerator.get_state_dict(model)"},
    ),
    good(
        "stage 3 is saved by another branch",
        {
            "train.py": _TRAIN
            % (
                3,
                "    if dist.get_rank() == 0 and engine.zero_optimization_stage() < 3:\n"
                "        torch.save(engine.module.state_dict(), path)\n"
                "    engine.save_checkpoint(path)\n",
            )
        },
    ),
    good(
        "what rank 0 writes first is replaced by the consolidated weights",
        {
            "train.py": _TRAIN
            % (3, _SAVE + "    if engine.zero_optimization_stage() == 3:\n        save_whole(engine)\n")
        },
    ),
    good(
        "the weights are gathered while rank 0 saves, and the optimizer is no model",
        {
            "train.py": _TRAIN
            % (
                3,
                "    with deepspeed.zero.GatheredParameters(list(model.parameters())):\n"
                "        if dist.get_rank() == 0:\n            torch.save(engine.module.state_dict(), path)\n"
                "    torch.save(engine.optimizer.state_dict(), path + str(dist.get_rank()))\n",
            )
        },
    ),
)
_SAVERS = frozenset({"save", "save_file", "async_save"})
_QUALIFIED_SAVERS = frozenset({"torch.save", "safetensors.torch.save_file", "safetensors.torch.save"})
_STATE_DICT = "state_dict"


def applies(_: str, context: Context, raw: bytes) -> bool:
    """Only where the ZeRO stage is certain is there anything to say."""
    return may_know_stage(context, raw)


def precheck(tree: ast.Module) -> bool:
    """A state dict is taken and something is saved, or a model saves itself without one."""
    nodes = flat(tree)
    names = set()
    for call in nodes.nodes(ast.Call):
        name = call_name(call)
        names.add(name)
        if name == "save_pretrained" and not any(k.arg in (None, _STATE_DICT) for k in call.keywords):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not (isinstance(owner, ast.Name) and _is_small(owner.id)):
                return True
    return _STATE_DICT in names and bool(names & _SAVERS)


def _is_small(name: str) -> bool:
    return any(word in name for word in ("token", "process", "config", "pipe", "extract", "sched"))


class Check(ScriptCheck):
    """Looks at what is saved."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on the raw state dict of a partitioned model."""
        name = self.ctx.called(node)
        if name == "save_pretrained" and isinstance(node.func, cst.Attribute):
            # Adapters are small: DeepSpeed leaves weights below 100,000 numbers whole, unless the config says less.
            if (
                self.ctx.imports("peft")
                or self.ctx.has_unpacked_arguments(node)
                or self.ctx.argument(node, _STATE_DICT, 2) is not None
            ):
                return
            self._judge(node, node.func.value, "save_pretrained")
        elif name in _SAVERS and node.args and self._saves(node):
            for model in self._models(node.args[0].value, 0):
                self._judge(node, model, "save")

    def _saves(self, call: cst.Call) -> bool:
        if self.ctx.qualified_name(call.func) in _QUALIFIED_SAVERS:
            return True
        return isinstance(call.func, cst.Attribute) and self.ctx.kind(call.func.value) == "accelerator"

    def _models(self, node: cst.BaseExpression, steps: int) -> list[cst.BaseExpression]:
        """The models whose state dicts an expression holds."""
        if steps > 3:
            return []
        if isinstance(node, cst.Call):
            func = node.func
            if isinstance(func, cst.Attribute) and func.attr.value == _STATE_DICT and not node.args:
                return [func.value]
            return []
        if isinstance(node, cst.Dict):
            values = [e.value for e in node.elements if isinstance(e, cst.DictElement)]
            return [model for value in values for model in self._models(value, steps + 1)]
        if isinstance(node, cst.DictComp):
            iterated = node.for_in.iter
            if isinstance(iterated, cst.Call) and self.ctx.called(iterated) == "items":
                owner = iterated.func.value if isinstance(iterated.func, cst.Attribute) else iterated
                return self._models(owner, steps + 1)
            return []
        value = self.ctx.names.single_value(node)
        return self._models(value, steps + 1) if value is not None and not self._is_gathered(value) else []

    def _is_gathered(self, value: cst.BaseExpression) -> bool:
        return self.ctx.zero3.gathers.is_inside(value)

    def _judge(self, call: cst.Call, model: cst.BaseExpression, kind: str) -> None:
        here = self.ctx.zero.at(call)
        if not here.is_among(3) or self.ctx.zero3.gathers.is_inside(call) or not self.ctx.zero3.models.is_engine(model):
            return
        if self.ctx.zero.is_left_to_another_branch(call):
            return
        saved = self.ctx.text(model)
        what = (
            f"`{saved}.save_pretrained` without `state_dict=`"
            if kind == "save_pretrained"
            else f"`{saved}.state_dict()`"
        )
        self.report(
            call,
            f"{what} saves the weights as they stand in the module, and at ZeRO stage 3 these are empty tensors: the "
            "file is written without an error and holds no weights",
            hint=self._hint(model),
            related=self.ctx.zero.origins(here),
            facts={"call": "save_pretrained" if kind == "save_pretrained" else "torch.save", "stage": 3},
        )

    def _hint(self, model: cst.BaseExpression) -> str:
        if self.ctx.kind(model).startswith("prepared"):
            return "Call `accelerator.get_state_dict(model)` on every rank and save what it returns"
        if self.ctx.kind(model).startswith("engine"):
            return (
                "Call `save_16bit_model` of the engine on every rank, with `stage3_gather_16bit_weights_on_model_save`"
            )
        return "Call `trainer.save_model(...)` on every rank"
