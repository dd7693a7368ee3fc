"""Several backwards for one step under DeepSpeed: each of them is an update, or only the last one counts.

**What.** `accelerator.backward(a)`, `accelerator.backward(b)` and then `optimizer.step()`, or a loop of such backwards
before the step, where the Accelerator works with DeepSpeed; or several `engine.backward` for one `engine.step()` at
ZeRO stage 1 or 2 with `gradient_accumulation_steps` 1.

**Why it hurts.** Under DeepSpeed `accelerator.backward` runs `engine.backward` and `engine.step`: it updates the
weights and clears the gradients, and `optimizer.step()` does nothing. So two losses are two updates, the second one at
weights that the first has moved; the learning rate is doubled and Adam sees each gradient alone. An engine without an
Accelerator keeps only the gradients of the last backward. Nothing fails, and with DDP the same script is right.

**Fix.** One backward of the sum: `accelerator.backward(a + b)`. Micro batches that the script makes itself belong into
`with accelerator.accumulate(model)`, with `gradient_accumulation_steps` for the Accelerator.

**When it stays quiet.** It is not certain that DeepSpeed trains; a step, or clearing, is between the backwards (two
models that take turns); no step of the script follows; the engine is told of several micro batches and counts the
backwards itself; the script says where a step ends (`set_gradient_accumulation_boundary`, `sync_gradients`).

**Evidence.** Two gloo ranks, accelerate 1.15, DeepSpeed 0.19.8: two backwards end with other weights than one of the
sum, and with the same ones without DeepSpeed. `DeepSpeedEngineWrapper.backward` in `accelerate/utils/deepspeed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Loop, Node, events
from dslint.python.queries.order import following
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import maker_of as accelerator_of
from dslint.rules.training.accelerators import uses_deepspeed
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import ACCELERATOR, ENGINE, maker_of, micro_batches, owners_of, stage_at

META = RuleMeta(
    code="DSL685",
    name="several-backwards-before-step",
    kind="script",
    severity=Severity.WARNING,
    summary="several backwards for one step under DeepSpeed: each one steps, or only the last one counts",
    markers=(r"backward\(", r"deepspeed|accelerat"),
    references=(
        "https://github.com/PKU-YuanGroup/Helios/pull/130",
        "https://huggingface.co/docs/accelerate/usage_guides/deepspeed",
    ),
    depends_on_run=True,
)
_BACKWARD = "accelerate.Accelerator.backward"
_EACH = "each `accelerator.backward` steps the engine"
_STEPS = frozenset({"optimizer-step", "engine-step", "zero-grad", "steps", "scaler-step"})
_SAYS_ITSELF = ("set_gradient_accumulation_boundary", "_set_sync_gradients", "sync_gradients =")


@dataclass(frozen=True, slots=True)
class _Pair:
    """A backward, the one that comes after it (itself in a loop), and the step after both."""

    first: Happening
    second: Event
    step: Event | None  # of a Trainer, which makes it itself


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first backward of each step that has several."""
    if any(word in module.code for module in run.machine.program.modules() for word in _SAYS_ITSELF):
        return
    seen: set[int] = set()
    for found in run.occurrences("engine-backward"):
        event = found.event
        if event.may or id(event.node) in seen:
            continue
        effect = _effect(run, found)
        pair = (_pair(found) or _pair_in_trainer(found)) if effect else None
        if pair is not None:
            seen |= {id(event.node), id(pair.second.node)}
            yield _finding(run, pair, effect)


def _effect(run: RunQuery, found: Happening) -> str:
    """Return what several backwards certainly do here; nothing where that is not known or harmless."""
    event = found.event
    if event.api == _BACKWARD:
        if _training_step(found) is not None and run.stages.stated[0] in (0, 1, 2, 3):
            return _EACH
        accelerator = accelerator_of(run, event.receiver)
        if accelerator is None or not uses_deepspeed(run, accelerator):
            return ""
        steps = micro_batches(run, instances(event.receiver), ACCELERATOR)
        count = steps.count if steps is not None else 1
        is_told = not run.context.accumulation.is_absent and run.context.accumulation.get_or(2) != 1
        is_block = any(node for node in run.happenings("accumulate"))
        if (count != 1 or is_told) and not is_block:
            return ""  # the engine counts the backwards
        return _EACH
    owners = owners_of(run, event.receiver, ENGINE)
    steps = micro_batches(run, owners, ENGINE) if owners else None
    if steps is None or steps.count != 1 or "engine-step" in event.tags:
        return ""
    return "the engine keeps only the last gradients" if stage_at(run, maker_of(run, owners)) in (1, 2) else ""


def _pair(found: Happening) -> _Pair | None:
    """Return the next backward of the same object before a step that comes after both."""
    loops = [node for node in found.around if isinstance(node, Loop)]
    scope: Node = loops[-1].body if loops else found.entry.tree
    second: Event | None = None
    for other in following(scope, found.event):
        if other.tags & _STEPS:
            return _Pair(found, second, other) if second is not None else None
        if second is None and _is_again(found, other):
            second = other
    if second is not None or any(e.tags & _STEPS for e in events(scope)):
        scope = loops[-2].body if len(loops) > 1 else found.entry.tree
        after = next((e for e in following(scope, found.event) if e.tags & _STEPS), None) if second else None
        return _Pair(found, second, after) if second is not None and after is not None else None
    return _repeated(found, loops)


def _training_step(found: Happening) -> Call | None:
    """Return the call of the `training_step` around an event: what calls it steps."""
    for call in reversed(found.calls):
        node = call.function.node if isinstance(call.function, Function) else None
        if getattr(node, "name", "") == "training_step":
            return call
    return None


def _pair_in_trainer(found: Happening) -> _Pair | None:
    """Return the next backward in the `training_step` of a Trainer."""
    call = _training_step(found)
    later = following(call.body, found.event) if call is not None else iter(())
    second = next((other for other in later if other.tags & _STEPS or _is_again(found, other)), None)
    return _Pair(found, second, None) if second is not None and not second.tags & _STEPS else None


def _repeated(found: Happening, loops: list[Loop]) -> _Pair | None:
    """Return a backward that a loop repeats before the step that comes after the loop, in an outer loop."""
    if len(loops) < 2 or any(isinstance(node, Alt) for node in _inside(found, loops[-1])):
        return None
    if any("makes-loader" in event.tags for event in events(loops[-1])):
        return None
    for other in following(loops[-2].body, found.event):
        if id(other) not in {id(e) for e in events(loops[-1])}:
            if other.tags & {"optimizer-step", "engine-step", "steps"}:
                return _Pair(found, found.event, other)
            if "engine-backward" in other.tags:
                return None
    return None


def _inside(found: Happening, loop: Loop) -> Iterator[Node]:
    at = next(number for number, node in enumerate(found.around) if node is loop)
    yield from found.around[at + 1 :]


def _is_again(found: Happening, other: Event) -> bool:
    """Return whether an event is another backward of the same Accelerator or engine."""
    mine = set(instances(found.event.receiver))
    return other.api == found.event.api and bool(mine & set(instances(other.receiver))) and not other.may


def _finding(run: RunQuery, pair: _Pair, effect: str) -> Finding:
    event = pair.first.event
    is_loop = pair.second is event
    what = "a loop of backwards" if is_loop else "several backwards"
    places = [] if is_loop else [run.location(pair.second.module, pair.second.node, "the next backward")]
    if pair.step is not None:
        places.append(run.location(pair.step.module, pair.step.node, "the step for all of them"))
    is_engine = event.api != _BACKWARD
    return run.finding(
        META,
        event.module,
        event.node,
        f"{what} for one step under DeepSpeed: {effect}, so the step does not use their sum",
        hint="Make one backward of the sum of the losses, or let the engine accumulate",
        related=tuple(places),
        facts={"by": "engine" if is_engine else "accelerate"},
    )


_HEAD = """\
import torch
from accelerate import Accelerator, DeepSpeedPlugin


def main(model, loader, other):
    accelerator = Accelerator(%s)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
%s
"""
_PLUGIN = "deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)"
_TWO = """\
        task = model(batch).mean()
        accelerator.backward(task)
        extra = 0.5 * other(model(batch))
        accelerator.backward(extra)
        optimizer.step()
        optimizer.zero_grad()"""
_LOOP = """\
        for part in batch.chunk(4):
            accelerator.backward(model(part).mean() / 4)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()"""
_TURNS = """\
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
        accelerator.backward(other(model(batch)))
        optimizer.step()
        optimizer.zero_grad()"""
_SUM = """\
        loss = model(batch).mean() + other(model(batch))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()"""
_SIDES = """\
        if batch.sum() > 0:
            accelerator.backward(model(batch).mean())
        else:
            accelerator.backward(other(model(batch)))
        optimizer.step()
        optimizer.zero_grad()"""
_ENGINE = """\
import deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": %d,
    "optimizer": {"type": "Adam"},
    "zero_optimization": {"stage": %d},
}


class Step:
    def __init__(self, model):
        self.engine, *_ = deepspeed.initialize(model=model, config=CONFIG)

    def backward(self, loss):
        self.engine.backward(loss)

    def run(self, batch, other):
        self.backward(self.engine(batch).mean())
        self.backward(other(self.engine(batch)))
        self.engine.step()


def main(model, batches, other):
    step = Step(model)
    for batch in batches:
        step.run(batch, other)
"""
_METHODS = """\
class Objectives:
    def __init__(self, accelerator, model, optimizer):
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer

    def update(self, batch):
        loss = self.model(batch).mean()
        self.accelerator.backward(loss)
        self.penalty(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def penalty(self, batch):
        self.accelerator.backward(self.model(batch).square().mean())
"""
_USES = ("from objectives import Objectives\n" + _HEAD % (_PLUGIN, "        objectives.update(batch)")).replace(
    "    for batch", "    objectives = Objectives(accelerator, model, optimizer)\n    for batch"
)

_TRAINER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class TwoLosses(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        extra = model(**inputs).logits.square().mean()
        self.accelerator.backward(extra)
        return (loss + extra).detach()


def main(model, data):
    args = TrainingArguments("out", %s)
    TwoLosses(model=model, args=args, train_dataset=data).train()
"""

EXAMPLES = (
    bad("two losses, one after the other", {"train.py": _HEAD % (_PLUGIN, _TWO)}, "train.py:11 warning"),
    bad("micro batches by hand", {"train.py": _HEAD % (_PLUGIN, _LOOP)}, "train.py:11 warning"),
    bad("in two methods of a class", {"train.py": _USES, "objectives.py": _METHODS}, "objectives.py:7 warning"),
    bad("an engine, through a helper", {"train.py": _ENGINE % (1, 2)}, "train.py:16 warning"),
    bad(
        "a launch command brings DeepSpeed",
        {
            "train.py": _HEAD % ("", _TWO),
            "ds.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"
            "  gradient_accumulation_steps: 1\n",
            "run.sh": "accelerate launch --config_file ds.yaml train.py\n",
        },
        "train.py:11 warning",
    ),
    bad(
        "a Trainer",
        {"train.py": _TRAINER % 'deepspeed={"zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}'},
        "train.py:8 warning",
    ),
    good("a Trainer without DeepSpeed", {"train.py": _TRAINER % "bf16=True"}),
    good("without DeepSpeed", {"train.py": _HEAD % ("", _TWO)}),
    good("one backward of the sum", {"train.py": _HEAD % (_PLUGIN, _SUM)}),
    good("a step after each", {"train.py": _HEAD % (_PLUGIN, _TURNS)}),
    good("one of two sides", {"train.py": _HEAD % (_PLUGIN, _SIDES)}),
    good("an engine at stage 3 adds up", {"train.py": _ENGINE % (1, 3)}),
    good("the engine counts the backwards", {"train.py": _ENGINE % (2, 2)}),
    good(
        "the plugin is told of as many",
        {"train.py": _HEAD % ("deepspeed_plugin=DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=2)", _TWO)},
    ),
)  # fmt: skip
