"""transformers does not know of ZeRO stage 3 when the model is loaded.

**What.** `HfDeepSpeedConfig(config)` whose result nobody keeps: as a statement of its own, or in a local variable of a
function that ends before a model is loaded. Or `HfDeepSpeedConfig(...)` and `TrainingArguments(...)` that come after
`from_pretrained`.

**Why it hurts.** transformers keeps a weak reference to the `HfDeepSpeedConfig`. Once the object is gone,
`is_deepspeed_zero3_enabled()` is false: `from_pretrained` builds the whole model on every rank, and `generate` does not
keep the ranks together. The same holds for a model that is loaded before the config is there. A model that needs
stage 3 runs out of memory here; a smaller one loads slowly, once for each rank.

**Fix.** `dschf = HfDeepSpeedConfig(config)`, held as long as the model lives, before `from_pretrained`; in a class,
`self.dschf`. The fix binds a name. With the Trainer: make the `TrainingArguments` before the model.

**When it stays quiet.** The object is bound and a model is loaded while it lives; it is returned, stored or passed on;
`HfDeepSpeedConfig(c).is_zero3()` asks and is done; the stage is known to be below 3. The order of `TrainingArguments`
and `from_pretrained` matters only when stage 3 is known.

**Evidence.** `set_hf_deepspeed_config` of transformers 5.23 stores `weakref.ref`. Two ranks at stage 3: dropped, and
made after the model, every rank builds all weights and (dropped) `is_deepspeed_zero3_enabled()` is false; kept and made
before, each rank builds empty placeholders. At stage 2 there is no difference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.model.script.quick import call_name, flat
from dslint.model.trlclasses import TRL_ARGUMENTS
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL213",
    name="hf-ds-config-late-or-dropped",
    kind="script",
    severity=Severity.ERROR,
    summary="transformers does not know of ZeRO stage 3 when the model is loaded",
    fix="safe",
    markers=(r"HfDeepSpeedConfig|TrainingArguments|parse_args_into_dataclasses|\btrl\b",),
    references=(
        "https://huggingface.co/docs/transformers/main/en/deepspeed#non-trainer-deepspeed-integration",
        "set_hf_deepspeed_config in transformers/integrations/deepspeed.py",
        "https://github.com/OpenRLHF/OpenRLHF/issues/100",
    ),
    depends_on_run=True,
)

_HEAD = """\
import deepspeed
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

CONFIG = {"train_batch_size": 8, "zero_optimization": {"stage": 3}}
"""
_LOAD = """\
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-70B")
engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG, model_parameters=model.parameters())
"""
_TRAINER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

ZERO = {"stage": %d, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": ZERO}


def main(dataset):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-70B")
    args = TrainingArguments("out", deepspeed=CONFIG)
    Trainer(model=model, args=args, train_dataset=dataset).train()
"""
_FUNCTION = """\


def announce():
    dschf = HfDeepSpeedConfig(CONFIG)
    print("ZeRO-3")
"""

_TRL = (
    (_TRAINER % 3)
    .replace(", Trainer, TrainingArguments", "\nfrom trl import SFTConfig, SFTTrainer")
    .replace("TrainingArguments(", "SFTConfig(")
    .replace("    Trainer(", "    SFTTrainer(")
)

_PARTS = """\
from transformers import AutoModelForCausalLM


def policy(name):
    return AutoModelForCausalLM.from_pretrained(name).train()
"""
_MADE = """\
from trl import DPOConfig, DPOTrainer

from parts import policy


def config(stage):
    zero = {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True}
    return DPOConfig("out", deepspeed={"train_micro_batch_size_per_gpu": "auto", "zero_optimization": zero})


def main(dataset):
    %s
    DPOTrainer(model=model, args=args, train_dataset=dataset).train()
"""

EXAMPLES = (
    bad(
        "factories make the model and the arguments",
        {"parts.py": _PARTS, "train.py": _MADE % 'model, args = policy("gpt2"), config(3)'},
        at="parts.py:5 warning",
    ),
    good(
        "in the right order",
        {"parts.py": _PARTS, "train.py": _MADE % 'args, model = config(3), policy("gpt2")'},
    ),
    good("stage 2", {"parts.py": _PARTS, "train.py": _MADE % 'model, args = policy("gpt2"), config(2)'}),
    bad(
        "an object that nobody keeps",
        {"train.py": _HEAD + "HfDeepSpeedConfig(CONFIG)  # tells from_pretrained\n" + _LOAD},
        at="train.py:6 error",
        fixed={"train.py": _HEAD + "dschf = HfDeepSpeedConfig(CONFIG)  # tells from_pretrained\n" + _LOAD},
    ),
    bad(
        "the config comes from elsewhere: the statement has no effect at any stage",
        {
            "load.py": """\
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig


def load(path, ds_config):
    HfDeepSpeedConfig(ds_config)
    return AutoModelForCausalLM.from_pretrained(path)
"""
        },
        at="load.py:6 warning",
    ),
    bad(
        "a local variable of a function that ends before the model is loaded",
        {"train.py": _HEAD + _FUNCTION + "\n\nannounce()\n" + _LOAD},
        at="train.py:9",
    ),
    bad(
        "after the model",
        {"train.py": _HEAD + _LOAD.replace("engine,", "dschf = HfDeepSpeedConfig(CONFIG)\nengine,")},
        at="train.py:6 warning",
    ),
    bad("the arguments of the Trainer after the model", {"train.py": _TRAINER % 3}, at="train.py:8 warning"),
    bad(
        "the arguments of a trainer of trl after the model",
        {"train.py": _TRL},
        at="train.py:9 warning",
    ),
    good(
        "the arguments of a trainer of trl at stage 2",
        {"train.py": _TRL.replace('"stage": 3', '"stage": 2')},
    ),
    good("kept, and before the model", {"train.py": _HEAD + "dschf = HfDeepSpeedConfig(CONFIG)\n" + _LOAD}),
    good("the same order at stage 2, where nothing is partitioned", {"train.py": _TRAINER % 2}),
    good(
        "a function that hands the object to its caller, and one that asks it something",
        {
            "train.py": _HEAD
            + """

def announce():
    dschf = HfDeepSpeedConfig(CONFIG)
    return dschf


def is_zero3():
    return HfDeepSpeedConfig(CONFIG).is_zero3()


kept = announce()
"""
            + _LOAD
        },
    ),
    good(
        "bound for a model that is made in the same function",
        {
            "model.py": """\
from transformers import AutoModel
from transformers.integrations import HfDeepSpeedConfig


class Reward:
    def __init__(self, path, ds_config=None):
        if ds_config is not None and ds_config["zero_optimization"]["stage"] == 3:
            dschf = HfDeepSpeedConfig(ds_config)
        else:
            dschf = None
        self.model = AutoModel.from_pretrained(path)
"""
        },
    ),
    good(
        "a tokenizer and the settings of the model before the arguments",
        {
            "train.py": _TRAINER.replace("AutoModelForCausalLM, ", "AutoConfig, AutoModelForCausalLM, AutoTokenizer, ")
            .replace("    model = AutoModelForCausalLM", "    model = AutoConfig")
            .replace("    Trainer(", '    model = AutoModelForCausalLM.from_pretrained("x")\n    Trainer(')
            % 3
        },
    ),
)
_QUIET_CALLS = frozenset({"print", "info", "debug", "warning", "log", "print_rank_0", "log_dist", "len", "str", "dict"})


def precheck(tree: ast.Module) -> bool:
    """`HfDeepSpeedConfig` is called, or arguments are made in a file that loads a model."""
    names = {call_name(call) for call in flat(tree).nodes(ast.Call)}
    if "HfDeepSpeedConfig" in names:
        return True
    makes = any(map(_makes_arguments, names))
    return makes and "from_pretrained" in names and _is_late(tree)


def _makes_arguments(name: str) -> bool:
    return name.endswith(("TrainingArguments", "parse_args_into_dataclasses")) or name in TRL_ARGUMENTS


def _is_late(tree: ast.Module) -> bool:
    """In some function a `from_pretrained` stands before the first arguments."""
    nodes = flat(tree)
    for at in nodes.places(ast.FunctionDef, ast.Module):
        calls = [n for n in nodes.order[at : nodes.ends[at]] if isinstance(n, ast.Call)]
        loads = [c.lineno for c in calls if call_name(c) == "from_pretrained"]
        makes = [c.lineno for c in calls if _makes_arguments(call_name(c))]
        if loads and makes and min(loads) < max(makes):
            return True
    return False


class Check(ScriptCheck):
    """Looks at the calls that tell transformers of DeepSpeed."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on an object that is dropped, and on one that is late."""
        loading = self.ctx.zero3.loading
        is_config = loading.is_hf_config(node)
        if not is_config and not loading.is_teller(node):
            return
        here = self.ctx.zero.at(node)
        if here.is_open or not here.may_be(3):
            return
        certain = here.is_among(3)
        if is_config and (dropped := self._dropped(node)):
            self._report_dropped(node, dropped, certain)
        elif certain or is_config:
            self._judge_order(node)

    def _dropped(self, call: cst.Call) -> str:
        """``statement`` or ``local`` when the object dies before a model can be loaded."""
        parent = self.ctx.parent(call)
        if isinstance(parent, cst.Expr):
            return "statement"
        function = self.ctx.enclosing_function(call)
        if function is None or not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
            return ""
        target = parent.targets[0].target
        if not isinstance(target, cst.Name) or len(self.ctx.names.bindings(target.value, call)) != 1:
            return ""
        at = self.ctx.tree.position(parent)
        scope = self.ctx.names.scope(call)
        if scope is not function:  # ``global dschf``
            return ""
        for later in self.ctx.descendants(function):
            if isinstance(later, cst.Yield | cst.Global | cst.Nonlocal):
                return ""
            if self.ctx.tree.position(later) <= at or self.ctx.tree.contains(parent, later):
                continue
            if isinstance(later, cst.Name) and later.value == target.value:
                return ""
            if isinstance(later, cst.Call) and self.ctx.called(later) not in _QUIET_CALLS:
                return ""
        return "local"

    def _report_dropped(self, call: cst.Call, dropped: str, certain: bool) -> None:
        text = self.ctx.text(call.func)
        if dropped == "statement":
            what = f"The result of `{text}(...)` is not kept, and transformers holds a weak reference only"
            hint = "Bind it to a name that lives as long as the model: `dschf = HfDeepSpeedConfig(...)`"
        else:
            what = f"The `{text}` of this local variable dies when the function returns, before a model is loaded"
            hint = "Return the object, or store it where it lives as long as the model"
        stage = "" if certain else ", if the config says ZeRO stage 3"
        self.report(
            call,
            f"{what}: `from_pretrained` does not know of ZeRO stage 3 and builds the whole model on every rank{stage}",
            hint=hint,
            severity=Severity.ERROR if certain else Severity.WARNING,
            fix=self._fix(call) if dropped == "statement" else None,
            facts={"kind": "dropped"},
        )

    def _fix(self, call: cst.Call) -> Fix | None:
        if self.ctx.names.bindings("dschf", call):
            return None
        start = self.ctx.span(call).start
        in_function = self.ctx.enclosing_function(call) is not None
        safety = Safety.UNSAFE if in_function else Safety.SAFE
        return Fix("Keep the object", (Edit(self.ctx.doc.path, Span(start, start), "dschf = "),), safety)

    def _judge_order(self, call: cst.Call) -> None:
        loading = self.ctx.zero3.loading
        if loading.is_told_before(call):
            return
        load = next((one for one in loading.loads if self._was_late(one, call)), None)
        if load is None:
            return
        name = self.ctx.text(call.func)
        self.report(
            load,
            f"`{self.ctx.text(load.func)}` comes before `{name}`, so transformers does not know of ZeRO stage 3 yet: "
            "every rank builds the whole model instead of its part",
            hint=f"Call `{name}` before the model is loaded",
            related=(self.ctx.location(call, "tells transformers of ZeRO stage 3"),),
            severity=Severity.WARNING,
            facts={"kind": "late"},
        )

    def _was_late(self, load: cst.Call, call: cst.Call) -> bool:
        return self.ctx.zero3.loading.is_before(load, call) and not self.ctx.zero3.gathers.is_inside(load)


# What the visitor cannot see: factories and other files make the models or the arguments.
def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a model of a Trainer that is loaded before arguments with stage 3 are made."""
    seen: set[int] = set()
    for entry, tree in run.trees():
        told: Event | None = None
        loads: list[Happening] = []
        for found in happenings_of(tree, entry):
            event = found.event
            if "loads" in event.tags and event.modules and told is None:
                loads.append(found)
            elif event.tags & {"training-arguments", "live-config"} and event.stage == 3 and told is None:
                told = event
            elif told is not None and event.tags & {"trainer", "makes-engine"}:
                late = next((load for load in loads if load.event.modules & event.modules), None)
                if late is not None and id(late.event.node) not in seen:
                    seen.add(id(late.event.node))
                    yield _late(run, late, told)


def _late(run: RunQuery, found: Happening, told: Event) -> Finding:
    name, load = told.api.rpartition(".")[2], found.event
    called = tuple(run.location(call.module, call.node, "called here") for call in found.calls[-1:])
    return run.finding(
        META,
        load.module,
        load.node,
        f"This model is loaded before `{name}` tells transformers of ZeRO stage 3: every rank builds all of it",
        hint=f"Make the `{name}` before the model is loaded",
        related=(*called, run.location(told.module, told.node, "tells transformers of ZeRO stage 3")),
        severity=Severity.WARNING,
        facts={"kind": "late"},
    )
