"""Which models and parameters ZeRO stage 3 spreads over the ranks at a place of a script."""

from __future__ import annotations

import textwrap

import pytest
from script_helpers import queried

from dslint.rules.script import dsl210_z3_param_touched_outside_gather as dsl210

HEAD = """\
import deepspeed
import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from peft import get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from project import OurForCausalLM

CONFIG = {"train_batch_size": 16, "zero_optimization": {"stage": 3}}
"""
ENGINE = "engine, *_ = deepspeed.initialize(model=model, config=CONFIG)\n"
LOADED = "args = TrainingArguments('out', deepspeed=CONFIG)\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
ARGS = "args = TrainingArguments('out', deepspeed=CONFIG)\n"
ACCELERATOR = "a = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))\n"
PREPARED = ACCELERATOR + "model, optimizer = a.prepare(model, optimizer)\n"


def ops(code: str) -> list[str]:
    """What is done with parameters that hold no numbers, in a function and what is called from there."""
    script = f"{HEAD}\n\ndef main(model, other, optimizer, state, c):\n{textwrap.indent(code, '    ')}\n"
    return sorted(str(dict(finding.facts)["op"]) for finding in queried(dsl210, script))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ENGINE + "engine.load_state_dict(state)", True),
        (ENGINE + "engine.module.load_state_dict(state)", True),
        (ENGINE + "model.load_state_dict(state)", True),
        (ENGINE + "optimizer.load_state_dict(state)", False),
        ("model.load_state_dict(state)\n" + ENGINE, False),
        (ENGINE + "x = engine.module if hasattr(engine, 'module') else engine\nx.load_state_dict(state)", True),
        (PREPARED + "a.unwrap_model(model).load_state_dict(state)", True),
        (PREPARED + "optimizer.load_state_dict(state)", False),
        (ARGS + "t = Trainer(model=model, args=args)\nt.train()\nmodel.load_state_dict(state)", True),
        (ARGS + "t = Trainer(model=model, args=args)\nmodel.load_state_dict(state)\nt.train()", False),
        (ARGS + "t = Trainer(model=model, args=args)\nt.train()\nt.model.load_state_dict(state)", True),
        (ARGS + "t = Trainer(model=model, args=args)\nt.model.load_state_dict(state)\nt.train()", False),
        ("model.load_state_dict(state)", False),
    ],
)  # fmt: skip
def test_models_that_were_initialized(code: str, expected: bool) -> None:
    assert ops(code) == ["load"] * expected


def test_the_model_of_a_trainer_in_its_own_method() -> None:
    code = "class Ours(Trainer):\n    def _save(self, path):\n        self.model.load_state_dict(path)\n"
    script = f"{HEAD}\n\n{code}\n\ndef main(model):\n    args = TrainingArguments('out', deepspeed=CONFIG)\n"
    assert len(queried(dsl210, script + "    Ours(model=model, args=args).train()\n")) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ARGS + "model = AutoModelForCausalLM.from_pretrained('x')\nmodel.load_state_dict(state)", True),
        (ARGS + "model = OurForCausalLM.from_pretrained('x')\nmodel.load_state_dict(state)", True),
        ("model = AutoModelForCausalLM.from_pretrained('x')\n" + ARGS + "model.load_state_dict(state)", False),
        (ARGS + "model = AutoTokenizer.from_pretrained('x')\nmodel.load_state_dict(state)", False),
        (LOADED.replace("'x'", "'x', load_in_4bit=True") + "model.load_state_dict(state)", False),
        (LOADED + "model = get_peft_model(model, c)\nmodel.load_state_dict(state)", False),
        (LOADED + "def use(model):\n    model.load_state_dict(state)\nuse(model)", True),
    ],
)  # fmt: skip
def test_models_that_are_spread_when_they_are_loaded(code: str, expected: bool) -> None:
    assert ops(code) == ["load"] * expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ENGINE + "print(engine.module.lm_head.weight.norm())", ["norm"]),
        (ENGINE + "print(engine.module.layers[0].q_proj.weight.data.mean())", ["norm"]),
        (ENGINE + "print(engine.module.layers[0].q_proj.weight.detach().float().mean())", ["norm"]),
        (ENGINE + "w = engine.module.lm_head.weight\nprint(torch.norm(w))", ["norm"]),
        (ENGINE + "print(engine.module.lm_head.weight.T)", ["norm"]),
        (ENGINE + "print(engine.module.lm_head.weight.size(0))", ["shape"]),
        (ENGINE + "engine.module.lm_head.weight.data = state", ["rows"]),
        (ENGINE + "engine.module.lm_head.weight *= 2", ["rows"]),
        (ENGINE + "print(engine.module.score.weight.norm())", []),
        (ENGINE + "print(engine.module.lm_head.bias.norm())", []),
        (ENGINE + "print(engine.module.lm_head.weight.grad.norm())", []),
        (ENGINE + "engine.module.lm_head.weight.grad.data.mul_(2)", []),
        (ENGINE + "for p in engine.parameters():\n    p.grad.data.mul_(2)\n    p.grad[0] = 1", []),
        (ENGINE + "for p in engine.parameters():\n    x = p.detach().float()\n    x.mul_(2)", []),
        (ENGINE + "for p in engine.parameters():\n    p.data.mul_(2)", ["fill"]),
        (ENGINE + "for p in list(engine.parameters()):\n    p.data.mul_(2)", ["fill"]),
        (ENGINE + "for name, p in engine.module.named_parameters():\n    print(p[0])", ["index"]),
        (ENGINE + "for name, p in engine.module.named_parameters():\n    print(name[0])", []),
        (ENGINE + "for p in other.parameters():\n    p.data.mul_(2)", []),
        (ENGINE + "out = engine(state)\nout[0] = 1\nprint(out.norm(), out[0], out.shape)", []),
        (ENGINE + "print(sum(p.ds_numel for p in engine.parameters()))", []),
        (LOADED + "print(model.get_input_embeddings().weight.norm())", ["norm"]),
        (LOADED + "rows = model.get_output_embeddings().weight.data\nrows[0] = 1", ["rows"]),
        (LOADED + "print(model.score.bias.norm())", ["norm"]),
        (LOADED + "print(model.config.vocab_size, model.config.shape)", []),
        (ENGINE + "print(model.get_input_embeddings().weight.shape)", ["shape"]),
        (
            ENGINE + "for layer in (engine.module.lm_head, engine.module.embed):\n    layer.weight.data.zero_()",
            ["fill"],
        ),
        (ENGINE + "for layer in (engine.module.lm_head, other.embed):\n    layer.weight.data.zero_()", []),
        (PREPARED + "for p in model.parameters():\n    p.data.mul_(2)", ["fill"]),
        ("def scale(engine):\n    for p in engine.parameters():\n        p.data.mul_(2)\n" + ENGINE + "scale(engine)",
         ["fill"]),
    ],
)  # fmt: skip
def test_parameters_that_hold_no_numbers(code: str, expected: list[str]) -> None:
    assert ops(code) == expected
