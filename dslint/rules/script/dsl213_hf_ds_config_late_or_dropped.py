"""transformers is unaware of ZeRO stage 3 when the model is loaded.

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

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Span
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.zero.enginenames import function_of

META = RuleMeta(
    code="DSL213",
    name="hf-ds-config-late-or-dropped",
    kind="script",
    severity=Severity.ERROR,
    summary="transformers is unaware of ZeRO stage 3 when the model is loaded",
    fix="safe",
    markers=(r"HfDeepSpeedConfig|TrainingArguments|parse_args_into_dataclasses|\btrl\b",),
    references=(
        "https://huggingface.co/docs/transformers/main/en/deepspeed#non-trainer-deepspeed-integration",
        "set_hf_deepspeed_config in transformers/integrations/deepspeed.py",
        "https://github.com/OpenRLHF/OpenRLHF/issues/100",
    ),
    depends_on_run=True,
)

_QUIET_CALLS = frozenset({"print", "info", "debug", "warning", "log", "print_rank_0", "log_dist", "len", "str", "dict"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a config that nobody keeps, and on a model that is loaded before transformers is told of stage 3."""
    for found in run.happenings("live-config"):
        here = run.stages.at(found)
        dropped = "" if here.is_open or not here.may_be(3) else _dropped(found.event)
        if dropped:
            yield _of_dropped(run, found.event, dropped, here.is_among(3))
    yield from _too_late(run)


def _too_late(run: RunQuery) -> Iterator[Finding]:
    """A model of a Trainer or engine that is loaded before arguments with stage 3 are made."""
    seen: set[int] = set()
    for entry, tree in run.trees():
        told: Event | None = None
        loads: list[Happening] = []
        for found in happenings_of(tree, entry):
            event = found.event
            if "loads" in event.tags and event.modules and told is None:
                loads.append(found)
            elif event.api == "accelerate.Accelerator" and told is None:
                break  # it may tell transformers
            elif event.tags & {"training-arguments", "live-config"} and told is None:
                if "live-config" in event.tags and _dropped(event):
                    continue
                if not run.stages.at(found).is_among(3) and event.stage != 3:
                    break
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
        f"This model is loaded before `{name}` enables ZeRO stage 3: every rank builds the whole model",
        hint=f"Make the `{name}` before the model is loaded",
        related=(*called, run.location(told.module, told.node, "tells transformers about ZeRO stage 3")),
        severity=Severity.WARNING,
        facts={"kind": "late"},
    )


def _dropped(event: Event) -> str:
    """Return ``statement`` or ``local`` when the object dies before a model can be loaded."""
    scope = function_of(event.module, event.node)
    statements = [node for node in ast.walk(scope) if isinstance(node, ast.stmt)]
    if any(isinstance(node, ast.Expr) and node.value is event.node for node in statements):
        return "statement"
    made, names = _names_of(statements, event.node)
    if made is None or not names or isinstance(scope, ast.Module):
        return ""
    read = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)]
    handed = [n.value for n in statements if isinstance(n, ast.Assign | ast.AnnAssign) and _target(n) in names]
    if any(node not in handed for node in read) or any(
        isinstance(n, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal) for n in ast.walk(scope)
    ):
        return ""
    later = (node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.lineno > (made.end_lineno or 0))
    return "" if any(_name_of(call) not in _QUIET_CALLS for call in later) else "local"


def _names_of(statements: list[ast.stmt], made: ast.AST) -> tuple[ast.stmt | None, set[str]]:
    """Return the last statement that keeps an object in a variable, and all that hold it."""
    last: ast.stmt | None = None
    names: set[str] = set()
    for node in statements:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if node.value is made or (isinstance(node.value, ast.Name) and node.value.id in names):
            if not _target(node):
                return None, set()
            last, names = node, names | {_target(node)}
    return last, names


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the one variable that a statement binds; empty for anything else."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if len(node.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else ""


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _of_dropped(run: RunQuery, event: Event, dropped: str, certain: bool) -> Finding:
    assert isinstance(event.node, ast.Call)
    text = run.text(event.module, event.node.func)
    if dropped == "statement":
        what = f"`{text}(...)` is not kept, and transformers holds only a weak reference"
        hint = "Bind it to a name that lives as long as the model: `dschf = HfDeepSpeedConfig(...)`"
    else:
        what = f"this local `{text}` dies when the function returns, before a model is loaded"
        hint = "Return the object, or store it where it lives as long as the model"
    stage = "" if certain else " (at ZeRO stage 3)"
    return run.finding(
        META,
        event.module,
        event.node,
        f"{what}: every rank builds the whole model{stage}",
        hint=hint,
        severity=Severity.ERROR if certain else Severity.WARNING,
        fix=_fix(run, event.module, event.node) if dropped == "statement" else None,
        facts={"kind": "dropped"},
    )


def _fix(run: RunQuery, module: Module, call: ast.Call) -> Fix | None:
    if module.path != run.path or "dschf" in module.code:
        return None
    start = module.span(call).start
    in_function = not isinstance(function_of(module, call), ast.Module)
    safety = Safety.UNSAFE if in_function else Safety.SAFE
    return Fix("Keep the object", (Edit(run.path, Span(start, start), "dschf = "),), safety)


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
