"""Which models and parameters ZeRO stage 3 spreads over the ranks at a place of a script."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.parse.python import ScriptDoc, parse_script
from dslint.rules.scriptcontext import ScriptContext

HEAD = """
import deepspeed
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from peft import get_peft_model
from project import OurForCausalLM
"""

ENGINE = "engine, *_ = deepspeed.initialize(model=model)\n"
LOADED = "args = TrainingArguments('out')\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"


def asked(code: str) -> tuple[ScriptContext, cst.BaseExpression]:
    """The argument of ``ask`` in a script."""
    doc = parse_script(SourceFile("train.py", HEAD + textwrap.dedent(code)))
    assert isinstance(doc, ScriptDoc)
    ctx = ScriptContext(doc, Context())
    for node in ctx.tree.order:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "ask":
            return ctx, node.args[0].value
    raise AssertionError("nothing asked")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("engine, *_ = deepspeed.initialize(model=model)\nask(engine)", True),
        ("engine, *_ = deepspeed.initialize(model=model)\nask(engine.module)", True),
        ("ask(model)\nengine, *_ = deepspeed.initialize(model=model)", False),
        (ENGINE + "x = engine.module if hasattr(engine, 'module') else engine\nask(x)", True),
        ("a = Accelerator()\nmodel, optimizer = a.prepare(model, optimizer)\nask(a.unwrap_model(model))", True),
        ("a = Accelerator()\nmodel, optimizer = a.prepare(model, optimizer)\nask(optimizer)", False),
        ("t = Trainer(model=model, args=args)\nt.train()\nask(model)", True),
        ("t = Trainer(model=model, args=args)\nask(model)\nt.train()", False),
        ("t = Trainer(model=model, args=args)\nt.train()\nask(t.model)", True),
        ("t = Trainer(model=model, args=args)\nask(t.model)\nt.train()", False),
        ("class Ours(Trainer):\n    def _save(self):\n        ask(self.model)", True),
        ("def save(model):\n    ask(model)\n", False),
    ],
)  # fmt: skip
def test_models_that_were_initialized(code: str, expected: bool) -> None:
    ctx, node = asked(code)
    assert ctx.zero3.models.is_engine(node) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("args = TrainingArguments('out')\nmodel = AutoModelForCausalLM.from_pretrained('x')\nask(model)", True),
        ("args = TrainingArguments('out')\nmodel = OurForCausalLM.from_pretrained('x')\nask(model)", True),
        ("model = AutoModelForCausalLM.from_pretrained('x')\nargs = TrainingArguments('out')\nask(model)", False),
        ("args = TrainingArguments('out')\nmodel = AutoTokenizer.from_pretrained('x')\nask(model)", False),
        (LOADED.replace("'x'", "'x', load_in_4bit=True") + "ask(model)", False),
        ("args = TrainingArguments('out')\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
         "model = get_peft_model(model, c)\nask(model)", False),
        ("def use(model):\n    ask(model)\n\nargs = TrainingArguments('out')\n"
         "model = AutoModelForCausalLM.from_pretrained('x')\nuse(model)", True),
    ],
)  # fmt: skip
def test_models_that_are_partitioned_when_they_are_loaded(code: str, expected: bool) -> None:
    ctx, node = asked(code)
    assert ctx.zero3.models.is_loaded(node) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ENGINE + "ask(engine.module.lm_head.weight)", True),
        (ENGINE + "ask(engine.module.layers[0].q_proj.weight.data)", True),
        (ENGINE + "ask(engine.module.score.weight)", False),
        (ENGINE + "ask(engine.module.lm_head.bias)", False),
        (ENGINE + "for p in engine.parameters():\n    ask(p.data)", True),
        (ENGINE + "for name, p in engine.module.named_parameters():\n    ask(p)", True),
        (ENGINE + "for name, p in engine.module.named_parameters():\n    ask(name)", False),
        (ENGINE + "for p in other.parameters():\n    ask(p)", False),
        (LOADED + "ask(model.get_input_embeddings().weight)", True),
        (LOADED + "rows = model.get_output_embeddings().weight.data\nask(rows)", True),
        (LOADED + "ask(model.score.bias)", True),
        (LOADED + "ask(model.config)", False),
    ],
)
def test_parameters_that_hold_no_values(code: str, expected: bool) -> None:
    ctx, node = asked(code)
    assert ctx.zero3.parameters.is_one(node) is expected
