"""`generate` at ZeRO stage 3, where each rank stops after its own answer.

**What.** `engine.module.generate(...)` (or `engine.generate`) without `synced_gpus=True`, on a model that
`deepspeed.initialize` partitioned at stage 3 while transformers does not know of it: no live `HfDeepSpeedConfig`, no
`TrainingArguments`, no `Accelerator`. With transformers before 4.28 it does not matter whether there is one.

**Why it hurts.** Every forward at stage 3 gathers the weights from all ranks. A rank whose answer is complete leaves
the loop, and the ranks with longer answers wait for it until the process-group timeout. It happens with the first batch
in which the answers differ in length.

**Fix.** `synced_gpus=True`: every rank goes on until the last one is done and drops the surplus. The fix adds it. Or
keep an `HfDeepSpeedConfig` alive, made before the model: `generate` then does it of itself.

**When it stays quiet.** The stage is below 3 or not known; `synced_gpus` is passed, or arguments are unpacked;
something in the file tells transformers of DeepSpeed; the model comes from elsewhere; all answers have the same number
of tokens (`min_new_tokens` equals `max_new_tokens`), or one fixed prompt without sampling; one process; the hybrid
engine, which gathers all weights first.

**Evidence.** Two gloo ranks at stage 3, answers of 7 and 3 tokens: the rank with 7 waits in an all-gather until the
timeout; with `synced_gpus=True`, with a live `HfDeepSpeedConfig`, with equal lengths and at stage 2 both finish
(transformers 5.23, DeepSpeed 0.19.8).
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Fix
from dslint.model.context import Context
from dslint.model.script.edits import keyword_edit
from dslint.model.script.quick import call_name, flat
from dslint.model.script.zero.statedstage import may_know_stage
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL209",
    name="z3-generate-without-synced-gpus",
    kind="script",
    severity=Severity.ERROR,
    summary="`generate` at ZeRO stage 3 lets each rank stop after its own answer",
    fix="safe",
    markers=(r"\.generate", r"deepspeed", r"initialize"),
    versions=("transformers",),
    references=(
        "https://github.com/huggingface/transformers/pull/22242",
        "https://github.com/deepspeedai/DeepSpeedExamples/pull/636",
        "GenerationMixin._extract_generation_mode_kwargs in transformers/generation/utils.py",
    ),
    depends_on_run=True,
)

_CHAT = """\
import deepspeed
from transformers import AutoModelForCausalLM, AutoTokenizer

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def answers(prompts, path):
    model = AutoModelForCausalLM.from_pretrained(path)
    engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG, model_parameters=model.parameters())
    for prompt in prompts:
        yield engine.module.generate(prompt, max_new_tokens=256%s)
"""
_FIXED = """\
import deepspeed
from transformers import AutoModelForCausalLM, AutoTokenizer

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}
model = AutoModelForCausalLM.from_pretrained("gpt2")
engine = deepspeed.initialize(model=model, config=CONFIG, model_parameters=model.parameters())[0]
tokenizer = AutoTokenizer.from_pretrained("gpt2")
inputs = tokenizer("DeepSpeed is", return_tensors="pt").to(engine.device)
engine.module.generate(inputs.input_ids, max_new_tokens=64)
"""

EXAMPLES = (
    bad(
        "answers of any length",
        {"chat.py": _CHAT % (3, "")},
        at="chat.py:11 error",
        fixed={"chat.py": _CHAT % (3, ", synced_gpus=True")},
    ),
    bad(
        "a variable for the module, and `synced_gpus=False`",
        {
            "chat.py": _CHAT.replace(
                "        yield engine.module", "        inner = engine.module\n        yield inner"
            )
            % (3, ", synced_gpus=False")
        },
        at="chat.py:12 error",
        fixed={
            "chat.py": _CHAT.replace(
                "        yield engine.module", "        inner = engine.module\n        yield inner"
            )
            % (3, ", synced_gpus=True")
        },
    ),
    bad(
        "a release of transformers that never synchronises of itself",
        {
            "requirements.txt": "deepspeed\ntransformers==4.27.4\n",
            "chat.py": _CHAT.replace("CONFIG =", "CONFIG =")
            .replace("AutoTokenizer\n", "AutoTokenizer\nfrom transformers.deepspeed import HfDeepSpeedConfig\n")
            .replace("    model =", "    dschf = HfDeepSpeedConfig(CONFIG)\n    model =")
            .replace("        yield", "        print(dschf)\n        yield")
            % (3, ""),
        },
        at="chat.py:14 error",
    ),
    good("stage 2: every rank has the whole model", {"chat.py": _CHAT % (2, "")}),
    good("told so", {"chat.py": _CHAT % (3, ", synced_gpus=True")}),
    good("all answers are equally long", {"chat.py": _CHAT % (3, ", min_new_tokens=256")}),
    good("one prompt for all, without sampling: all ranks give the same answer", {"chat.py": _FIXED}),
    good(
        "transformers knows of stage 3",
        {
            "chat.py": _CHAT.replace(
                "AutoTokenizer\n", "AutoTokenizer\nfrom transformers.integrations import HfDeepSpeedConfig\n"
            ).replace("    model =", "    dschf = HfDeepSpeedConfig(CONFIG)\n    model =")
            % (3, "")
            + "    del dschf\n"
        },
    ),
    good(
        "the model comes from elsewhere, where somebody may have told transformers",
        {
            "chat.py": _CHAT.replace("    model = AutoModelForCausalLM.from_pretrained(path)\n", "").replace(
                "prompts, path", "prompts, model"
            )
            % (3, "")
        },
    ),
)
_SINCE = "4.28"
_ENGINES = frozenset({"engine", "engine_module"})


def applies(_: str, context: Context, raw: bytes) -> bool:
    """Only where the ZeRO stage is certain is there anything to say."""
    return may_know_stage(context, raw)


def precheck(tree: ast.Module) -> bool:
    """`generate` is called without `synced_gpus` in a file that makes an engine."""
    calls = flat(tree).nodes(ast.Call)
    if not any(call_name(call) == "initialize" for call in calls):
        return False
    return any(call_name(call) == "generate" and all(k.arg is not None for k in call.keywords) for call in calls)


class Check(ScriptCheck):
    """Looks at every `generate` of an engine."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where nobody keeps the ranks together."""
        func = node.func
        if not (isinstance(func, cst.Attribute) and func.attr.value == "generate"):
            return
        if self.ctx.kind(func.value) not in _ENGINES or self.ctx.has_unpacked_arguments(node):
            return
        synced = self.ctx.argument(node, "synced_gpus", 5)
        if synced is not None and self.ctx.constant(synced).get_or(True) is not False:
            return
        here = self.ctx.zero.at(node)
        if not here.is_among(3) or self.ctx.run.world_size.get_or(2) < 2 or "hybrid_engine" in self.ctx.doc.source.text:
            return
        old = self._is_old()
        if not old and (self._is_told() or not self._is_made_here(func.value)):
            return
        if self._has_equal_lengths(node) or self._is_same_everywhere(node):
            return
        edit = keyword_edit(self.ctx.doc, node, "synced_gpus", "True")
        why = "this release of transformers" if old else "transformers, which does not know of stage 3 here,"
        self.report(
            node,
            f"`{self.ctx.text(func)}` at ZeRO stage 3 without `synced_gpus=True`: {why} stops each rank after its own "
            "answer, and the ranks with longer ones wait for it in the next forward until the timeout",
            hint="Pass `synced_gpus=True`",
            related=self.ctx.zero.origins(here),
            fix=Fix("Keep the ranks together", (edit,)) if edit is not None else None,
            facts={"stage": 3},
        )

    def _is_old(self) -> bool:
        stated = self.ctx.run.libraries.get("transformers")
        return stated is not None and covers(stated, f"<{_SINCE}", "transformers") == "yes"

    def _is_told(self) -> bool:
        """Something in the file may keep an `HfDeepSpeedConfig` alive."""
        if self.ctx.zero3.loading.tellers:
            return True
        text = self.ctx.doc.source.text
        return any(word in text for word in ("HfDeepSpeedConfig", "TrainingArguments", "Accelerator", "HfTrainer"))

    def _is_made_here(self, engine: cst.BaseExpression) -> bool:
        """The model of the engine is loaded in this file: nobody else told transformers."""
        made = self.ctx.objects.made(engine) or self.ctx.objects.taken(engine)
        model = self.ctx.argument(made, "model", 1) if made is not None else None
        source = self.ctx.objects.made(model) if model is not None else None
        return source is not None and self.ctx.zero3.loading.is_load(source)

    def _has_equal_lengths(self, call: cst.Call) -> bool:
        most, least = (self.ctx.argument(call, f"{which}_new_tokens") for which in ("max", "min"))
        if most is None:
            return False
        limit = self.ctx.constants.likely(most).get_or(None)
        if limit == 1 or least is None:
            return limit == 1
        lower = self.ctx.constants.likely(least).get_or(None)
        # Two values of which nobody knows whether they are one.
        return self.ctx.text(least) == self.ctx.text(most) or limit == lower or None in (limit, lower)

    def _is_same_everywhere(self, call: cst.Call) -> bool:
        """One prompt that stands in the file, decoded without sampling."""
        sample = self.ctx.argument(call, "do_sample")
        first = self.ctx.argument(call, "inputs", 0) or self.ctx.argument(call, "input_ids")
        if first is None or (sample is not None and self.ctx.constant(sample).get_or(True) is not False):
            return False
        node, steps = first, 0
        while steps < 8:
            steps += 1
            if self.ctx.constant(node).is_known:
                return True
            if isinstance(node, cst.Call):
                prompt = node.args[0].value if node.args and self.ctx.called(node) != "to" else None
                if prompt is not None and self.ctx.constant(prompt).is_known:
                    return True
                if not isinstance(node.func, cst.Attribute):
                    return False
                node = node.func.value
            elif isinstance(node, cst.Attribute | cst.Subscript):
                node = node.value
            else:
                value = self.ctx.names.single_value(node)
                if value is None:
                    return False
                node = value
        return False
