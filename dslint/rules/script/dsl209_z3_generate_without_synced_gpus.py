"""`generate` at ZeRO stage 3, where each rank stops after its own answer.

**What.** `engine.module.generate(...)` (or `engine.generate`) without `synced_gpus=True`, on a model that
`deepspeed.initialize`, or the `DeepSpeedStrategy` of Lightning, partitioned at stage 3 while transformers does not know
of it: no live `HfDeepSpeedConfig`, no `TrainingArguments`, no `Accelerator` (Lightning makes none of these). With
transformers before 4.28 it does not matter whether there is one.

**Why it hurts.** Every forward at stage 3 gathers the weights from all ranks. A rank whose answer is complete leaves
the loop, and the ranks with longer answers wait for it until the process-group timeout. It happens with the first batch
in which the answers differ in length.

**Fix.** `synced_gpus=True`: every rank continues until the last one is done and drops the surplus. The fix adds it. Or
keep an `HfDeepSpeedConfig` alive, made before the model: `generate` then does it of itself.

**When it stays quiet.** The stage is below 3 or not known; `synced_gpus` is passed, or settings are unpacked;
something in the file tells transformers of DeepSpeed; the model comes from elsewhere; all answers have the same number
of tokens (`min_new_tokens` equals `max_new_tokens`), or one fixed prompt without sampling; one process; the hybrid
engine, which gathers all weights first.

**Evidence.** Two gloo ranks at stage 3, answers of 7 and 3 tokens: the rank with 7 waits in an all-gather until the
timeout; with `synced_gpus=True`, with a live `HfDeepSpeedConfig`, with equal lengths and at stage 2 both finish
(transformers 5.23, DeepSpeed 0.19.8).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.versions.resolve import covers
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.edits import keyword_edit
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import is_same_number
from dslint.rules.zero.stagetests import value_behind
from dslint.rules.zero.zero3 import Spread, is_gathered, spread_of, tells

META = RuleMeta(
    code="DSL209",
    name="z3-generate-without-synced-gpus",
    kind="script",
    severity=Severity.ERROR,
    summary="`generate` at ZeRO stage 3 lets each rank stop after its own answer",
    fix="safe",
    markers=(r"\.generate", r"deepspeed|DeepSpeed", r"initialize|[Ll]ightning|accelerat"),
    versions=("transformers",),
    references=(
        "https://github.com/huggingface/transformers/pull/22242",
        "https://github.com/deepspeedai/DeepSpeedExamples/pull/636",
        "GenerationMixin._extract_generation_mode_kwargs in transformers/generation/utils.py",
    ),
    depends_on_run=True,
)

_SINCE = "4.28"
_TELLERS = ("HfDeepSpeedConfig", "TrainingArguments", "Accelerator", "HfTrainer")
_MAX_STEPS = 8
# What turns a model into an engine, and tells transformers nothing.
_MAKES = {"makes-engine", "trainer"}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on `generate` of an engine where nobody keeps the ranks together."""
    if run.context.world_size.get_or(2) < 2:
        return
    seen: set[int] = set()
    for spread in spread_of(run):
        for found in spread.read():
            event = found.event
            maker = spread.engine_of(event.receiver) if "generate" in event.tags else None
            if maker is None or id(event.node) in seen or not (maker.tags & _MAKES or _is_off(event)):
                continue
            is_read = not event.open or event.batch or _is_off(event)
            if is_read and not is_gathered(found) and _stops_alone(run, spread, found, maker):
                seen.add(id(event.node))
                yield _finding(run, found, maker)


def _stops_alone(run: RunQuery, spread: Spread, found: Happening, maker: Event) -> bool:
    event = found.event
    synced = event.arguments.get("synced_gpus")
    if synced is not None and synced.constants != (False,):
        return False
    if not run.stages.at(found, maker).is_among(3) or "hybrid_engine" in event.module.code:
        return False
    if not _is_old(run) and not _is_off(event) and (_is_told(spread, event) or not _is_made_here(spread, event)):
        return False
    return not (_has_equal_lengths(event) or _is_same_everywhere(event))


def _is_off(event: Event) -> bool:
    """Return whether the call says that the ranks are not kept together: transformers then asks nobody."""
    synced = event.arguments.get("synced_gpus")
    return synced is not None and synced.constants == (False,)


def _finding(run: RunQuery, found: Happening, maker: Event) -> Finding:
    event = found.event
    call = event.node
    assert isinstance(call, ast.Call)
    is_unpacked = _is_off(event) and not any(keyword.arg == "synced_gpus" for keyword in call.keywords)
    is_ours = event.module.path == run.path and not is_unpacked
    edit = keyword_edit(event.module, call, "synced_gpus", "True") if is_ours else None
    why = (
        "; this release of transformers does not set it"
        if _is_old(run)
        else "; transformers is unaware of stage 3 here"
    )
    why = "" if _is_off(event) else why
    return run.finding(
        META,
        event.module,
        call,
        f"`{run.text(event.module, call.func)}` lacks `synced_gpus=True` at ZeRO stage 3: ranks with longer"
        " answers hang"
        " alone",
        hint=f"Pass `synced_gpus=True`{why}",
        related=run.stages.at(found, maker).places,
        fix=Fix("Keep the ranks together", (edit,)) if edit is not None else None,
        facts={"stage": 3},
    )


def _is_old(run: RunQuery) -> bool:
    stated = run.context.libraries.get("transformers")
    return stated is not None and covers(stated, f"<{_SINCE}", "transformers") == "yes"


def _is_told(spread: Spread, event: Event) -> bool:
    """Something in the run may keep an `HfDeepSpeedConfig` alive."""
    if any(tells(found.event) for found in spread.happenings):
        return True
    return any(word in event.module.code for word in _TELLERS)


def _is_made_here(spread: Spread, event: Event) -> bool:
    """The model is loaded in this run: nobody else told transformers."""
    loaded = {atom for found in spread.happenings if "loads" in found.event.tags for atom in found.event.modules}
    models = instances(event.receiver)
    return bool(models) and all(model in loaded for model in models)


def _has_equal_lengths(event: Event) -> bool:
    most, least = (event.arguments.get(f"{which}_new_tokens") for which in ("max", "min"))
    if most is None:
        return False
    if most.constants == (1,) or least is None:
        return most.constants == (1,)
    # Two values of which nobody knows whether they are one.
    return most.constants is None or least.constants is None or most == least or is_same_number(most, least)


def _is_same_everywhere(event: Event) -> bool:
    """One prompt that stands in the file, decoded without sampling."""
    sample = event.arguments.get("do_sample")
    if sample is not None and sample.constants != (False,):
        return False
    call = event.node
    keywords = {keyword.arg: keyword.value for keyword in call.keywords} if isinstance(call, ast.Call) else {}
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    node = first or keywords.get("inputs") or keywords.get("input_ids")
    return node is not None and _is_written(event.module, node)


def _is_written(module: Module, node: ast.expr) -> bool:
    """Return whether a constant of the file is all that an expression is made of."""
    for _ in range(_MAX_STEPS):
        if _is_constant(module, node):
            return True
        if isinstance(node, ast.Call):
            is_moved = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
            prompt = node.args[0] if node.args and not is_moved else None
            prompt = (value_behind(module, prompt) or prompt) if prompt is not None else None
            if prompt is not None and _is_constant(module, prompt):
                return True
            if not isinstance(node.func, ast.Attribute):
                return False
            node = node.func.value
        elif isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        else:
            behind = value_behind(module, node)
            if behind is None:
                return False
            node = behind
    return False


def _is_constant(module: Module, node: ast.expr, steps: int = _MAX_STEPS) -> bool:
    """Return whether an expression is made of constants, also of those that an object or a class of the file holds."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name):
        held = value_behind(module, node.value)
        parts = held.values if isinstance(held, ast.Dict) else [k.value for k in getattr(held, "keywords", ())]
        classes = (c for c in module.tree.body if isinstance(c, ast.ClassDef) and c.name == node.value.id)
        given = [s.value for c in classes for s in c.body if isinstance(s, ast.Assign)]
        return bool([*parts, *given]) and all(_is_constant(module, part, 0) for part in (*parts, *given))
    if isinstance(node, ast.BinOp) and steps:
        return _is_constant(module, node.left, steps - 1) and _is_constant(module, node.right, steps - 1)
    return False


_ACCELERATE = """\
from dataclasses import asdict, dataclass

from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin
from transformers import AutoModelForSeq2SeqLM


@dataclass
class Settings:
    max_length: int = 128
    synced_gpus: bool = %s


def main(path, loader, optimizer):
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=%d))
    model = AutoModelForSeq2SeqLM.from_pretrained(path)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        yield accelerator.unwrap_model(model).generate(batch["input_ids"], **asdict(Settings()))
"""

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
_LIGHTNING = """\
import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy
from transformers import T5ForConditionalGeneration


class Writer(L.LightningModule):
    def configure_model(self):
        self.model = T5ForConditionalGeneration.from_pretrained("t5-base")

    def validation_step(self, batch, batch_idx):
        return self.model.generate(batch["input_ids"], max_new_tokens=64%s)


def main(loader):
    trainer = L.Trainer(accelerator="gpu", devices=4, strategy=%s)
    trainer.fit(Writer(), loader, loader)
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
    bad("accelerate, told not to synchronise", {"chat.py": _ACCELERATE % (False, 3)}, at="chat.py:19 error"),
    good("accelerate, told to synchronise", {"chat.py": _ACCELERATE % (True, 3)}),
    good("accelerate at stage 2", {"chat.py": _ACCELERATE % (False, 2)}),
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
    bad(
        "Lightning, which tells transformers nothing",
        {"write.py": _LIGHTNING % ("", "DeepSpeedStrategy(stage=3)")},
        at="write.py:11 error",
        fixed={"write.py": _LIGHTNING % (", synced_gpus=True", "DeepSpeedStrategy(stage=3)")},
    ),
    bad(
        "Lightning, and the strategy by its name",
        {"write.py": _LIGHTNING % ("", '"deepspeed_stage_3_offload"')},
        at="write.py:11 error",
        fixed={"write.py": _LIGHTNING % (", synced_gpus=True", '"deepspeed_stage_3_offload"')},
    ),
    good("Lightning at stage 2", {"write.py": _LIGHTNING % ("", "DeepSpeedStrategy(stage=2)")}),
    good("Lightning with DDP", {"write.py": _LIGHTNING % ("", '"ddp"')}),
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
