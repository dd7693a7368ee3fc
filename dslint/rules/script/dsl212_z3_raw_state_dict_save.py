"""The state dict of a partitioned model is saved: it holds empty tensors.

**What.** `torch.save(model.state_dict(), ...)`, `save_file(model.state_dict(), ...)` or `model.save_pretrained(...)`
without `state_dict=`, where `model` is a DeepSpeed engine, its module, or the model of a Trainer or of
`accelerator.prepare`, in a run at ZeRO stage 3.

**Why it hurts.** At stage 3 every rank holds a part of each weight, and what is in the module is an empty tensor.
The file is written without an error and holds nothing. It shows when somebody loads it, often after the job and its
checkpoints are gone.

**Fix.** With an engine: `engine.save_16bit_model(folder)` with `stage3_gather_16bit_weights_on_model_save`, or
`engine.save_checkpoint` and `zero_to_fp32.py`. With accelerate: `state_dict=accelerator.get_state_dict(model)`. With
the Trainer: `trainer.save_model()`. All of them must be called by every rank.

**When it stays quiet.** The stage is below 3 or not known; a branch, an early return or the caller keeps stage 3 away;
another branch of the same function saves at stage 3; inside `GatheredParameters`; `state_dict=` is passed; the state of
an optimizer or a schedule. `save_pretrained` in a script that uses PEFT is a warning, since adapters may be small:
DeepSpeed leaves parameters whole that have at most `stage3_param_persistence_threshold` numbers (100,000; `auto` of
transformers: ten times the hidden size, which the adapters of the MLP exceed at rank 8). `save_pretrained` of a model
with prompt tuning, prefix tuning or p-tuning of PEFT: it runs the prompt encoder, whose hooks gather what is saved, so
every rank must call it (DSL202).

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: `torch.save(engine.module.state_dict())` at stage 3 gives tensors of
shape (0,), and whole ones at stages 1 and 2; `engine.module.save_pretrained` of a Llama (transformers 5.23) writes none
of its 21 weights with its shape at stage 3, and all at stage 2.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Atom, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.zero.stages import is_left_to_another_branch
from dslint.rules.zero.stagetests import expressions_behind
from dslint.rules.zero.zero3 import Spread, is_gathered, spread_of

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
_SAVES_AT_3 = re.compile(r"save|gather|consolidat|state_dict", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on what saves the state of a model whose weights an engine has spread."""
    seen: set[int] = set()
    for spread in spread_of(run):
        taken: dict[ast.AST, tuple[Happening, Event]] = {}
        for found in spread.read():
            event = found.event
            if "state-dict" in event.tags and event.api.endswith(".state_dict"):
                maker = spread.engine_of(event.receiver)
                if maker is not None and not event.arguments and not is_gathered(found):
                    taken[event.node] = (found, maker)
            elif "saves" in event.tags and id(event.node) not in seen and not is_gathered(found):
                for state, maker in _states(spread, found, taken):
                    if _is_certain(run, found, state, maker):
                        seen.add(id(event.node))
                        yield _finding(run, found, state, maker)
                        break


def _states(
    spread: Spread, found: Happening, taken: dict[ast.AST, tuple[Happening, Event]]
) -> Iterator[tuple[Happening, Event]]:
    """Yield the calls that give what is saved, of which each engine took the model."""
    event = found.event
    if event.api.endswith(".save_pretrained"):
        if "waits-if-sharded" in event.tags:  # a prompt encoder runs, and its hooks gather what is saved
            return
        maker = spread.engine_of(event.receiver)
        is_small = _is_of_adapters(event)
        given = event.arguments.get("state_dict")
        if given is None or given.constants == (None,):
            if maker is not None and not event.open:
                yield found, maker
            return
        if is_small:
            return
    atoms = frozenset[Atom]().union(*(value.atoms for value in event.arguments.values()))
    inside = set(expressions_behind(event.module, event.node))
    for node, (state, maker) in taken.items():
        made = state.event.result.atoms if state.event.result is not None else frozenset[Atom]()
        if node in inside or any(isinstance(atom, Instance) and atom in made for atom in atoms):
            yield state, maker


def _is_of_adapters(event: Event) -> bool:
    """Return whether the module of a call imports PEFT: DeepSpeed leaves small weights whole."""
    return any("peft" in home for home, _ in itertools.chain(*event.module.imported.values()))


def _is_certain(run: RunQuery, found: Happening, state: Happening, maker: Event) -> bool:
    here, there = run.stages.at(found, maker), run.stages.at(state, maker)
    return here.is_among(3) and there.is_among(3) and not is_left_to_another_branch(found, _SAVES_AT_3)


def _finding(run: RunQuery, found: Happening, state: Happening, maker: Event) -> Finding:
    event, call = found.event, state.event.node
    is_method = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    saved = run.text(state.event.module, call.func.value if is_method else call)  # type: ignore[attr-defined]
    is_whole_model = state is found
    what = f"`{saved}.save_pretrained` without `state_dict=`" if is_whole_model else f"`{saved}.state_dict()`"
    is_adapter = is_whole_model and _is_of_adapters(event)
    which = "empty tensors above `stage3_param_persistence_threshold`" if is_adapter else "empty tensors"
    return run.finding(
        META,
        event.module,
        event.node,
        f"{what} saves {which} at ZeRO stage 3, without an error",
        hint=_hint(maker),
        severity=Severity.WARNING if is_adapter else None,
        related=run.stages.at(found, maker).places,
        facts={"call": "save_pretrained" if is_whole_model else "torch.save", "stage": 3},
    )


def _hint(maker: Event) -> str:
    if "prepares" in maker.tags:
        return "Call `accelerator.get_state_dict(model)` on every rank and save what it returns"
    if "makes-engine" in maker.tags:
        return "Call `save_16bit_model` of the engine on every rank, with `stage3_gather_16bit_weights_on_model_save`"
    return "Call `trainer.save_model(...)` on every rank"


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

_EXPORT = "engine.module.save_pretrained(path, state_dict=engine.module.state_dict())"
EXAMPLES = (
    bad(
        "the state of the module goes to `save_pretrained`",
        {"train.py": _TRAIN % (3, _SAVE.replace("torch.save(engine.module.state_dict(), path)", _EXPORT))},
        at="train.py:14 error",
    ),
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
    bad(
        "adapters of PEFT, which may be above the persistence threshold",
        {"train.py": "from peft import LoraConfig, get_peft_model\n" + _ACCELERATE % ""},
        "train.py:15 warning",
    ),
    good(
        "prompt tuning of PEFT: every rank runs the prompt encoder, whose weights are gathered",
        {
            "train.py": _ACCELERATE.replace(
                "\naccelerator =",
                "from peft import PromptTuningConfig, get_peft_model\n\naccelerator =",
            ).replace('gpt2")', 'gpt2")\n    model = get_peft_model(model, PromptTuningConfig(num_virtual_tokens=8))')
            % ""
        },
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
