"""`compute_loss` of a Trainer runs the model inside of its wrapper.

**What.** A subclass of a Trainer of transformers computes its loss with `self.model(...)`, with
`self.accelerator.unwrap_model(model)(...)` or with `model.module(...)`, and never calls the `model` that it is given.

**Why it hurts.** With several processes that `model` is a `DistributedDataParallel` wrapper. Its forward prepares the
averaging of the gradients. Without it every rank steps with its own gradients: nothing fails, the ranks train
different models, and what is saved is that of rank 0, trained on its part of the data only.

**Fix.** Call the `model` that `compute_loss` gets; unwrap it for its `config` or for a generation only.

**When it stays quiet.** The wrapper runs as well, in `compute_loss`, in a helper or in `super().compute_loss(...)`, or
is handed to code that cannot be read; what runs without gradients; a run under DeepSpeed or FSDP, whose hooks sit in
the parameters; one process.

**Evidence.** Two gloo ranks, torch 2.13: after three steps through the model inside of DDP the weights of the ranks
differ; through the wrapper they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event, events, walk
from dslint.python.models import INSIDE
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import ClassAtom, Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import averages_by_hand, is_wrapper

META = RuleMeta(
    code="DSL633",
    name="trainer-loss-past-wrapper",
    kind="script",
    severity=Severity.WARNING,
    summary="`compute_loss` of a Trainer runs the model inside of DDP, so that no gradient is averaged",
    markers=(r"Trainer", r"def compute_loss"),
    references=(
        "https://github.com/huggingface/trl/issues/5282",
        "Trainer._wrap_model in transformers/trainer.py",
    ),
    depends_on_run=True,
)
_STEP, _TRAINER = "compute_loss", "transformers.Trainer"
# What takes a wrapper and does not run it.
_LOOKS = frozenset({"isinstance", "hasattr", "getattr", "type", "id", "print", "len"})
_TAKES_OUT = re.compile(r"unwrap|extract_model")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first run of the model inside, in a step that never runs the wrapper."""
    if run.context.is_one_process or run.context.zero_stage.is_known or run.is_fsdp or _is_sharded(run):
        return
    seen: set[int] = set()
    for found in run.occurrences(INSIDE):
        step = next((call for call in found.calls if _is_step(run, call)), None)
        if step is None or id(step.function) in seen or not found.event.api.endswith(".forward"):
            continue
        if any(is_frozen(node) for node in found.around) or averages_by_hand(found.event.module):
            continue
        if not _runs_wrapper(run, step, found.event) and not _is_handed_on(step):
            seen.add(id(step.function))
            yield _finding(run, found, step)


def _is_sharded(run: RunQuery) -> bool:
    """Return whether the arguments of training name a configuration of DeepSpeed, or FSDP."""
    made = [found.event for found in run.happenings("training-arguments")]
    given = (event.arguments.get(name) for event in made for name in ("deepspeed", "fsdp"))
    return any(value is not None and value.constants not in ((None,), ("",)) for value in given)


def _is_step(run: RunQuery, call: Call) -> bool:
    """Return whether a call runs the `compute_loss` of a class that derives from a Trainer of transformers."""
    function = call.function
    if not isinstance(function, Function) or function.name != _STEP or function.owner is None:
        return False
    return any(_is_trainer(run, cls) for cls in attributes.descendants(run.machine, function.owner))


def _is_trainer(run: RunQuery, cls: ClassAtom) -> bool:
    bases = (base for base in attributes.lineage(run.machine, cls) if isinstance(base, str))
    return any(row.path == _TRAINER for base in bases for row in run.machine.libraries.lineage(base))


def _runs_wrapper(run: RunQuery, step: Call, inside: Event) -> bool:
    """Return whether the step runs the wrapper as well, by itself or by the Trainer's own `compute_loss`."""
    mine = [event for event in events(step.body) if event.node is not inside.node]
    return any(
        event.api.endswith(f".{_STEP}")
        or ("forward" in event.tags and any(is_wrapper(run, atom) for atom in instances(event.receiver)))
        for event in mine
    )


def _is_handed_on(step: Call) -> bool:
    """Return whether the step hands its model to code that cannot be read, which may run it."""
    function = step.function
    inner = [node for node in walk(step.body) if isinstance(node, Call)]
    followed = {id(call.node) for call in inner}
    names = _parameters(function)
    return any(
        name == names[1] and id(call) not in followed
        for each in (function, *(call.function for call in inner))
        for name, call in _given(each)
        if len(names) > 1
    )


def _parameters(function: object) -> list[str]:
    if not isinstance(function, Function):
        return []
    return [argument.arg for argument in function.node.args.args]


def _given(function: object) -> Iterator[tuple[str, ast.Call]]:
    """Yield the variables that a function hands to other code, each with the call."""
    for call in ast.walk(function.node) if isinstance(function, Function) else ():
        name = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and name not in _LOOKS and not _TAKES_OUT.search(name):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            yield from ((value.id, call) for value in given if isinstance(value, ast.Name))


def _finding(run: RunQuery, found: Happening, step: Call) -> Finding:
    event, function = found.event, step.function
    assert isinstance(function, Function)
    text = run.text(event.module, getattr(event.node, "func", event.node))
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{text}(...)` in `{_STEP}` bypasses DDP: no gradient is averaged, and the ranks train different models",
        hint="Call the `model` that `compute_loss` is given",
        related=(run.location(function.module, function.node, "the Trainer runs backward on what this returns"),),
        facts={"kept": "self.model" in text},
    )


_SCRIPT = """\
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Distiller(Trainer):
    def __init__(self, *args, teacher, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        %s
        loss = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
        return (loss, outputs) if return_outputs else loss


def main(data):
    args = TrainingArguments("out", ddp_find_unused_parameters=False)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    teacher = AutoModelForCausalLM.from_pretrained("gpt2-xl")
    Distiller(model=model, teacher=teacher, args=args, train_dataset=data).train()
"""
_LINES = {
    "unwrapped": "student = self.accelerator.unwrap_model(model)\n        outputs = student(**inputs)",
    "own": "outputs = self.model(**inputs)",
    "module": 'inner = model.module if hasattr(model, "module") else model\n        outputs = inner(**inputs)',
    "helper": "outputs = self.run(model, inputs)\n",
    "wrapper": "outputs = model(**inputs)",
    "looks": "width = self.accelerator.unwrap_model(model).config.vocab_size\n        outputs = model(**inputs)",
    "aside": "with torch.no_grad():\n            self.model(**inputs)\n        outputs = model(**inputs)",
    "redirected": "student = self.accelerator.unwrap_model(model)\n"
    "        outputs = self.redirect(model, student, student(**inputs))",
}
_HELPER = """\
    def run(self, model, inputs):
        return self.accelerator.unwrap_model(model)(**inputs)

    def compute_loss("""

EXAMPLES = (
    bad("what accelerate unwraps", {"train.py": _SCRIPT % _LINES["unwrapped"]}, "train.py:14 warning"),
    bad("the model that the Trainer keeps", {"train.py": _SCRIPT % _LINES["own"]}, "train.py:13 warning"),
    bad("the model inside, where there is a wrapper", {"train.py": _SCRIPT % _LINES["module"]}, "train.py:14 warning"),
    bad(
        "a helper of the class",
        {"train.py": (_SCRIPT % _LINES["helper"]).replace("    def compute_loss(", _HELPER)},
        "train.py:12 warning",
    ),
    *(
        good(f"the wrapper ({name})", {"train.py": _SCRIPT % _LINES[name]})
        for name in ("wrapper", "looks", "aside", "redirected")
    ),
    good(
        "under DeepSpeed, whose hooks sit in the parameters",
        {"train.py": (_SCRIPT % _LINES["unwrapped"]).replace('"out", ', '"out", deepspeed=CONFIG, ')},
    ),
)
