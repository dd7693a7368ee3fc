"""A device map for a model that ZeRO stage 3 spreads over the ranks.

**What.** `from_pretrained(..., device_map=...)` with a value other than `None` in a run at ZeRO stage 3, after
transformers has been told of it (`HfDeepSpeedConfig`, `TrainingArguments`, `accelerate`).

**Why it hurts.** Stage 3 places the weights itself. transformers refuses the combination: `ValueError: DeepSpeed Zero-3
is not compatible with passing a device_map` on every rank, when the model is loaded.

In a job of several processes without ZeRO, `device_map="auto"` spreads the model of each process over the GPUs of all,
and accelerate refuses to train it. At stage 3 the releases of transformers before 5.0 refuse `low_cpu_mem_usage=True`
as well; later ones ignore it.

**Fix.** Drop `device_map`, or make it `None` at stage 3: `device_map=None if is_deepspeed_zero3_enabled() else "auto"`.

**When it stays quiet.** The value is `None` wherever stage 3 can come to it, or not known; the stage is not known to be
3, or no command at stage 3 passes the switch of the branch; transformers does not know of stage 3 at that point (then
DSL213 speaks), so that it accepts the map; tokenizers and other things that are no models; `low_cpu_mem_usage` where
nobody states a release from 4.28 to 4.57. `"auto"` without stage 3, in a job of several processes, is not judged: what
it does depends on the size of the model.

**Evidence.** `check_and_set_device_map` of transformers 5.23 raises the `ValueError`. Two ranks at stage 3: `"auto"`
and one device both raise on every rank; at stage 2 the model loads. `from_pretrained` of transformers 4.28 to 4.57
raises for `low_cpu_mem_usage=True` as well, and `Accelerator.prepare_model` of accelerate 1.15 for a model on more than
one device in a distributed run (both read from the sources).
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat, is_none
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL214",
    name="z3-with-device-map",
    kind="script",
    severity=Severity.ERROR,
    summary="`device_map` for a model that ZeRO stage 3 spreads over the ranks",
    markers=(
        r"device_map[\"']?\s*[=:]|low_cpu_mem_usage",
        r"from_pretrained",
        r"deepspeed|accelerat|Train|trl|zero",
    ),
    references=(
        "check_and_set_device_map in transformers/integrations/accelerate.py",
        "https://huggingface.co/docs/transformers/main/en/deepspeed",
    ),
    depends_on_run=True,
)

# The maps that use every GPU that the process sees.
_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")
_REFUSES = ">=4.28,<5"
_TRAIN = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled

ZERO = {"stage": %s, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": ZERO}


def main(dataset, local_rank, lora):
    args = TrainingArguments("out", deepspeed=CONFIG)
    %s
    Trainer(model=model, args=args, train_dataset=dataset).train()
"""


def _loads(call: str, stage: int = 3) -> dict[str, str]:
    return {"train.py": _TRAIN % (stage, call)}


_PLAIN = """\
from transformers import AutoModelForCausalLM, Trainer


def main(data, local_rank):
    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=%s)
    Trainer(model=model, train_dataset=data).train()
"""

EXAMPLES = (
    bad(
        "`auto` on each of four processes, without ZeRO",
        {
            "train.py": _PLAIN % '"auto"',
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 warning",
    ),
    good(
        "`auto` in one process",
        {"train.py": _PLAIN % '"auto"', "run.sh": "python train.py\n"},
    ),
    good(
        "a device for each of four processes",
        {
            "train.py": _PLAIN % '{"": local_rank}',
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
    ),
    bad(
        "`low_cpu_mem_usage`, with a release that refuses it",
        {
            **_loads('model = AutoModelForCausalLM.from_pretrained("gpt2", low_cpu_mem_usage=True)'),
            "requirements.txt": "transformers==4.41.2\n",
        },
        at="train.py:11 error",
    ),
    good(
        "`low_cpu_mem_usage`, with a release that ignores it",
        {
            **_loads('model = AutoModelForCausalLM.from_pretrained("gpt2", low_cpu_mem_usage=True)'),
            "requirements.txt": "transformers==5.23.0\n",
        },
    ),
    bad(
        "`auto`",
        _loads('model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")'),
        at="train.py:11 error",
    ),
    bad(
        "a whole device for each rank, by way of a variable",
        _loads('place = {"": local_rank}\n    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'),
        at="train.py:12",
    ),
    bad(
        "the stage of the config that a plain DeepSpeed script names",
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}\n',
            "train.py": """\
import deepspeed
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

dschf = HfDeepSpeedConfig("ds.json")
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="cuda")
engine, _, _, _ = deepspeed.initialize(model=model, config="ds.json", model_parameters=model.parameters())
""",
        },
        at="train.py:6",
    ),
    bad(
        "the wrong arm of a test that asks for stage 3",
        {
            "load.py": """\
from transformers import AutoModel
from transformers.integrations import is_deepspeed_zero3_enabled


def load(path):
    return AutoModel.from_pretrained(path, device_map="auto" if is_deepspeed_zero3_enabled() else None)
"""
        },
        at="load.py:6",
    ),
    good(
        "none at stage 3",
        _loads(
            'place = None if is_deepspeed_zero3_enabled() else "auto"\n'
            '    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'
        ),
    ),
    good(
        "an arm for runs without DeepSpeed: no command at stage 3 passes its switch",
        {
            "zero3.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3,\n'
            '  "stage3_gather_16bit_weights_on_model_save": true}}\n',
            "run.sh": "torchrun --nproc_per_node 8 train.py --output_dir out --deepspeed zero3.json\n",
            "train.py": """\
from dataclasses import dataclass, field

from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class DataArguments:
    train_file: str = field(default="train.json")


@dataclass
class TrainingArguments(TrainingArguments):
    use_int8_training: bool = field(default=False)


def main(load):
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    if training_args.use_int8_training:
        model = AutoModelForCausalLM.from_pretrained("gpt2", load_in_8bit=True, device_map="auto")
    else:
        model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=training_args, train_dataset=load(data_args.train_file)).train()
""",
        },
    ),
    good(
        "stage 2 keeps whole models, each on its device",
        _loads('model = AutoModelForCausalLM.from_pretrained("gpt2", device_map={"": local_rank})', 2),
    ),
    good(
        "a map for quantized models only, and nobody knows whether they are",
        _loads(
            "place = None\n    if lora.q_lora:\n        place = {'': local_rank}\n"
            '    model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=place)'
        ),
    ),
    good(
        "`None`, and a map for something that is no model",
        _loads(
            'model = AutoModelForCausalLM.from_pretrained("gpt2", device_map=None)\n'
            '    store = AutoProcessor.from_pretrained("gpt2", device_map="auto")'
        ),
    ),
    good(
        "an inference script that nothing connects with DeepSpeed",
        {
            "chat.py": """\
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")
print(model)
"""
        },
    ),
)
_MAX_STEPS = 4


def precheck(tree: ast.Module) -> bool:
    """A model is loaded with a device map other than ``None``, or in the way that saves memory."""
    for call in flat(tree).nodes(ast.Call):
        if call_name(call) == "from_pretrained":
            for keyword in call.keywords:
                if keyword.arg in ("device_map", "low_cpu_mem_usage") and not is_none(keyword.value):
                    return True
    return False


class Check(ScriptCheck):
    """Looks at the device map of every model that is loaded."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a map that is there at stage 3."""
        loading = self.ctx.zero3.loading
        value = self.ctx.argument(node, "device_map")
        if not loading.is_load(node):
            return
        if value is None:
            self._judge_memory(node, self.ctx.argument(node, "low_cpu_mem_usage"))
            return
        here = self.ctx.zero.at(node)
        self._judge_ranks(node, value)
        if self.findings or here.is_open or not here.may_be(3):
            return
        said = self._values(value, 0)
        at_3 = [v for v in said or () if self.ctx.zero.at(v).may_be(3) or self.ctx.zero.at(v).is_open]
        # Each value that stage 3 can come to is a map, and one of them certainly is there at stage 3.
        if not at_3 or any(self._is_none_or_open(v) for v in at_3):
            return
        told = loading.is_told_before(node)
        certain = [v for v in at_3 if self.ctx.zero.at(v).is_among(3) and (told or self.ctx.zero.at(v).tests)]
        if here.is_among(3) and (told or here.tests):
            certain = at_3
        if not certain:
            return
        shown = self.ctx.text(certain[0])
        self.report(
            value,
            f"`device_map={shown}` for a model that is loaded at ZeRO stage 3, which places the weights itself: "
            "transformers raises a `ValueError` on every rank",
            hint="Drop `device_map`, or pass `None` when `is_deepspeed_zero3_enabled()`",
            related=self.ctx.zero.origins(self.ctx.zero.at(certain[0])),
            facts={"device_map": "auto" if shown.strip("\"'") == "auto" else "one device"},
        )

    def _judge_ranks(self, node: cst.Call, value: cst.BaseExpression) -> None:
        """`"auto"` in a job of several processes on a machine: each spreads the model over the GPUs of all of them."""
        run = self.ctx.run
        several = run.processes_per_node.get_or(1) > 1
        if (
            not several
            or self.ctx.zero.stated.get_or(0) == 3
            or self.ctx.constant(value).get_or(None) not in _SPREADING
        ):
            return
        trains = any(self.ctx.kind(call) == "trainer" for call in self.ctx.tree.every(cst.Call))
        if not trains or self.ctx.guards.is_conditional(node) or self.ctx.guard(node) is not None:
            return
        self.report(
            value,
            f"`device_map={self.ctx.text(value)}` in each of {run.processes_per_node.get_or(0)} processes on a machine"
            " spreads every copy of the model over all GPUs, and accelerate refuses to train it",
            hint='Drop `device_map`, or give each process its own GPU: `device_map={"": local_rank}`',
            related=tuple(o.labelled("several processes are started here") for o in run.processes_per_node.origins),
            severity=Severity.WARNING,
            facts={"device_map": "auto in several processes"},
        )

    def _judge_memory(self, node: cst.Call, value: cst.BaseExpression | None) -> None:
        """`low_cpu_mem_usage=True`, which the releases before 5.0 refuse."""
        stated = self.ctx.run.libraries.get("transformers")
        if value is None or stated is None or self.ctx.constant(value).get_or(None) is not True:
            return
        here = self.ctx.zero.at(node)
        told = self.ctx.zero3.loading.is_told_before(node) or bool(here.tests)
        if not (told and here.is_among(3)) or covers(stated, _REFUSES, "transformers") != "yes":
            return
        self.report(
            value,
            "`low_cpu_mem_usage=True` for a model that is loaded at ZeRO stage 3: transformers"
            f" {stated.specifier.removeprefix('==')} raises a `ValueError` on every rank",
            hint="Drop `low_cpu_mem_usage`: at stage 3 no rank holds the whole model anyway",
            related=(*self.ctx.zero.origins(here), *([stated.origin] if stated.origin is not None else [])),
            facts={"device_map": "none"},
        )

    def _values(self, node: cst.BaseExpression, steps: int) -> list[cst.BaseExpression] | None:
        """The expressions that a map may come from; ``None`` when the file does not say all of them."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(node, cst.IfExp):
            arms = self._values(node.body, steps + 1), self._values(node.orelse, steps + 1)
            return None if arms[0] is None or arms[1] is None else [*arms[0], *arms[1]]
        if not isinstance(node, cst.Name) or node.value in ("None", "True", "False"):
            return [node]
        found = self.ctx.names.bindings(node.value, node)
        if not found or any(b.kind != "assign" or b.value is None for b in found):
            return None
        parts = [self._values(b.value, steps + 1) for b in found if b.value is not None]
        return None if any(p is None for p in parts) else [value for p in parts for value in p or ()]

    def _is_none_or_open(self, value: cst.BaseExpression) -> bool:
        if self.ctx.zero.at(value).is_open:
            return True
        if isinstance(value, cst.Dict | cst.DictComp):
            return False
        fact = self.ctx.constant(value)
        return not fact.is_known or fact.value is None
