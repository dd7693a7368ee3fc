"""`GatheredParameters` gets the tensors of a `state_dict()`, which it cannot gather.

**What.** Tensors of `model.state_dict()` go to `deepspeed.zero.GatheredParameters`, directly or through a helper such
as `maybe_zero_3(tensor)`.

**Why it hurts.** At ZeRO stage 3 a parameter is an empty placeholder with a `ds_id`, by which DeepSpeed finds its
parts. `state_dict()` gives detached tensors without it. `GatheredParameters` silently skips them, and a test of
`hasattr(tensor, "ds_id")` takes the way for plain tensors. The adapter or checkpoint that is saved holds tensors of
size 0, which shows when somebody loads it.

**Fix.** Go over `model.named_parameters()`; or take `state_dict(keep_vars=True)`.

**When it stays quiet.** Some of the tensors come from elsewhere, or nobody knows from where; `keep_vars` is passed; the
run is known to use another stage.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8, stage 3: gathered from `state_dict()` every tensor has no elements, from
`named_parameters()` all of them. `GatheredParameters.__init__` in `deepspeed/runtime/zero/partition_parameters.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.handedtensors import origins, spot_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL686",
    name="gather-of-state-dict",
    kind="script",
    severity=Severity.ERROR,
    summary="`GatheredParameters` gets tensors of a `state_dict()`, which it cannot gather: they stay empty",
    markers=(r"GatheredParameters", r"state_dict"),
    references=("https://github.com/lm-sys/FastChat/pull/1285",),
    depends_on_run=True,
)
_KEEPS = "keep_vars"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each state dict whose tensors alone come to a gather."""
    taken = {id(h.event.node): h.event for h in run.occurrences("state-dict") if _is_detached(h.event)}
    seen: set[int] = set()
    for found in run.occurrences("gathers-parameters") if taken else ():
        node = found.event.nodes.get("params") or _first(found.event.node)
        if node is None or not run.stages.at(found).may_be(3):
            continue
        spot = spot_of(found.event.module, found.entry.node, found.calls)
        made = origins(node, spot)
        states = [taken.get(id(call)) for call in made or ()]
        if not states or None in states:
            continue
        state = states[0]
        if state is not None and id(state.node) not in seen:
            seen.add(id(state.node))
            yield _finding(run, found, state)


def _is_detached(event: Event) -> bool:
    """Return whether a call gives the detached tensors of a module."""
    return event.api.endswith(".state_dict") and _KEEPS not in event.arguments and not event.open


def _first(node: ast.AST) -> ast.expr | None:
    return node.args[0] if isinstance(node, ast.Call) and node.args else None


def _finding(run: RunQuery, found: Happening, state: Event) -> Finding:
    code = run.text(state.module, state.node)
    return run.finding(
        META,
        state.module,
        state.node,
        f"`{code}` gives detached tensors, which `GatheredParameters` cannot gather: they stay empty at ZeRO stage 3",
        hint="Iterate over `model.named_parameters()`, or pass `keep_vars=True`",
        related=(run.location(found.event.module, found.event.node, "gathers nothing"),),
        facts={"stage": 3},
    )


_IO = """\
from deepspeed import zero


def whole(tensor):
    if hasattr(tensor, "ds_id"):
        with zero.GatheredParameters([tensor]):
            return tensor.data.detach().cpu().clone()
    return tensor.detach().cpu().clone()


def adapter_of(model):
    kept = {}
    for name, tensor in model.%s:
        if "lora_" in name:
            kept[name] = whole(tensor)
    return kept


def export(trainer, folder):
    weights = adapter_of(trainer.model)
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(folder, state_dict=weights)
"""
_TRAIN = """\
import torch
from io_of_adapters import export
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig(task_type="CAUSAL_LM"))
trainer = Trainer(model=model, args=args, train_dataset=[])
trainer.train()
export(trainer, args.output_dir)
"""
_PEFT = """\
import deepspeed
import torch

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def maybe_zero_3(param):
    if hasattr(param, "ds_id"):
        with deepspeed.zero.GatheredParameters([param]):
            param = param.data.cpu().clone()
    return param


def lora_state(named, bias):
    if bias == "all":
        chosen = {k: t for k, t in named if "lora_" in k or "bias" in k}
    else:
        chosen = {k: t for k, t in named if "lora_" in k}
    return {k: maybe_zero_3(v) for k, v in chosen.items()}


def main(model, bias, path):
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    state = %s
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)
"""
_DIRECT = """\
import deepspeed
import torch


class Keeper:
    def __init__(self, engine):
        self.engine = engine

    def weights(self):
        state = self.engine.module.state_dict(%s)
        with deepspeed.zero.GatheredParameters(list(state.values()), modifier_rank=None):
            return {name: value.cpu().clone() for name, value in state.items()}


def main(model, config, path):
    engine, *_ = deepspeed.initialize(model=model, config=config)
    state = Keeper(engine).weights()
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)
"""

EXAMPLES = (
    bad(
        "a helper that knows of placeholders",
        {"train.py": _TRAIN, "io_of_adapters.py": _IO % "state_dict().items()"},
        at="io_of_adapters.py:13 error",
    ),
    bad(
        "through two functions and comprehensions",
        {"train.py": _PEFT % (3, "lora_state(engine.module.state_dict().items(), bias)")},
        at="train.py:24 error",
    ),
    bad("all of them at once", {"train.py": _DIRECT % ""}, at="train.py:10 error"),
    good("parameters", {"train.py": _TRAIN, "io_of_adapters.py": _IO % "named_parameters()"}),
    good("parameters, through two functions", {"train.py": _PEFT % (3, "lora_state(model.named_parameters(), bias)")}),
    good("stage 2", {"train.py": _PEFT % (2, "lora_state(engine.module.state_dict().items(), bias)")}),
    good("parameters are kept", {"train.py": _DIRECT % "keep_vars=True"}),
)
