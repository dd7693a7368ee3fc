"""A model is loaded in float16 and trained with a gradient scaler.

**What.** `from_pretrained(name, torch_dtype=torch.float16)` or `model.half()`, and then fp16 training: `fp16=True` of
`TrainingArguments` (also by the command line), `Accelerator(mixed_precision="fp16")`, or a `GradScaler`.

**Why it hurts.** Mixed precision keeps the weights in float32 and computes in float16. The scaler refuses gradients
that are float16 themselves: `ValueError: Attempting to unscale FP16 gradients.` ends every rank at its first optimizer
step, after the queue, the loading and the first batches.

**Fix.** Load the model in float32 (leave the dtype out, or `torch_dtype=torch.float32`) and let fp16 training cast;
or load and train in bfloat16, which needs no scaler.

**When it stays quiet.** DeepSpeed, FSDP and apex, which keep master weights or unscale themselves; adapters and
quantized models, whose trained weights have a type of their own; scripts that cast weights to float32 or freeze some;
a scaler with `enabled=False`.

**Evidence.** torch 1.13 to 2.13, `_unscale_grads_` in `torch/amp/grad_scaler.py` raises without `allow_fp16`; observed
with torch 2.13 on a CPU (`torch.amp.GradScaler("cpu")`, by `unscale_` and by `step`). The Trainer and accelerate give
their optimizer to the same scaler.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.halfscripts import ACCELERATE, NET, PARSED, PLAIN, TRAINER
from dslint.rules.runs import RunQuery
from dslint.rules.training.halfweights import ELSEWHERE, halved_by
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import models_given, parameter_owners

META = RuleMeta(
    code="DSL740",
    name="half-weights-under-scaler",
    kind="script",
    severity=Severity.WARNING,
    summary="the weights of a model are float16 and a gradient scaler is used: it refuses their gradients",
    markers=(r"float16|\.half\(|torch\.half", r"fp16|GradScaler|Trainer"),
    references=(
        "https://github.com/huggingface/transformers/issues/23165",
        "https://github.com/huggingface/peft/issues/341",
        "torch.amp.GradScaler._unscale_grads_ in torch/amp/grad_scaler.py",
    ),
    depends_on_run=True,
    no_experiment="the scaler raises in one process as it does in several",
)
_SWITCHES = ("bf16", "fsdp", "deepspeed")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each model in float16 that a scaler gets gradients of."""
    if not run.context.zero_stage.is_absent or any(
        module.search(ELSEWHERE) for module in run.machine.program.modules()
    ):
        return
    seen: set[ast.AST] = set()
    for model, scaled, label in (*_by_trainer(run), *_by_accelerator(run), *_by_scaler(run)):
        found = halved_by(run, model)
        if found is None or found[1] in seen:
            continue
        seen.add(found[1])
        yield run.finding(
            META,
            found[0].module,
            found[1],
            "these weights are trained in float16 with a gradient scaler: `Attempting to unscale FP16 gradients` ends"
            " the run",
            hint="Load the model in float32 and let fp16 training cast, or use bfloat16",
            related=(scaled.labelled(label),),
            facts={"by": label},
        )


def _by_trainer(run: RunQuery) -> Iterator[tuple[Instance, Location, str]]:
    """Yield what a Trainer with `fp16=True` trains."""
    for found in run.occurrences("trainer"):
        told = [run.makers.get(atom) for atom in instances(found.event.arguments.get("args"))]
        place = _is_told(run, told[0]) if len(told) == 1 and told[0] is not None else None
        if place is not None:
            yield from ((atom, place, "fp16 training") for atom in instances(found.event.arguments.get("model")))


def _is_told(run: RunQuery, told: Event) -> Location | None:
    """Return where the arguments of a Trainer ask for fp16, and for nothing else that trains in its own way."""
    if told.may or told.open or not told.tags & {"training-arguments", "parses-arguments"}:
        return None
    passed = run.context.arguments
    if any(_is_given(told, name) or (name in passed and passed[name].get_or(None)) for name in _SWITCHES):
        return None
    stated = told.arguments.get("fp16")
    if stated is not None and stated.constants == (True,):
        return run.location(told.module, told.nodes.get("fp16", told.node))
    given = passed.get("fp16") if "parses-arguments" in told.tags else None
    is_on = given is not None and given.is_known and str(given.value).lower() in ("true", "1")
    return next(iter(given.origins), None) if is_on and given is not None else None


def _is_given(told: Event, name: str) -> bool:
    value = told.arguments.get(name)
    return value is not None and value.constants not in ((None,), (False,), ("",))


def _by_accelerator(run: RunQuery) -> Iterator[tuple[Instance, Location, str]]:
    """Yield what accelerate prepares for fp16."""
    for found in run.occurrences("prepares"):
        for made in filter(None, (run.makers.get(atom) for atom in instances(found.event.receiver))):
            precision = made.arguments.get("mixed_precision")
            if made.open or precision is None or precision.constants != ("fp16",) or not run.has("optimizer-step"):
                continue
            place = run.location(made.module, made.nodes.get("mixed_precision", made.node))
            asked = parameter_owners(run)
            trained = {atom for each in run.occurrences("makes-optimizer") for atom in models_given(each.event, asked)}
            yield from ((atom, place, "fp16 training") for atom in trained)


def _by_scaler(run: RunQuery) -> Iterator[tuple[Instance, Location, str]]:
    """Yield the models of optimizers that a scaler of torch steps."""
    asked = parameter_owners(run)
    makers = {atom: each.event for each in run.occurrences("makes-optimizer") for atom in instances(each.event.result)}
    for found in run.occurrences("scaler-step", "unscales"):
        scalers = [run.makers.get(atom) for atom in instances(found.event.receiver)]
        if len(scalers) != 1 or scalers[0] is None or _may_be_off(scalers[0]):
            continue
        place = run.location(found.event.module, found.event.node)
        for optimizer in instances(found.event.arguments.get("optimizer")):
            made = makers.get(optimizer)
            yield from (
                (a, place, "the scaler's step") for a in (models_given(made, asked) if made is not None else ())
            )


def _may_be_off(made: Event) -> bool:
    enabled = made.arguments.get("enabled")
    return made.open or "sharded" in made.api or (enabled is not None and enabled.constants != (True,))


EXAMPLES = (
    bad("the Trainer", {"train.py": TRAINER % ("torch.float16", "pass", "fp16=True")}, "train.py:9 warning"),
    bad("in words", {"train.py": TRAINER % ('"float16"', "pass", "fp16=True")}, "train.py:9 warning"),
    bad("a cast after loading", {"train.py": TRAINER % ("None", "model.half()", "fp16=True")}, "train.py:10 warning"),
    bad("fp16 by the command", {
        "train.py": PARSED, "run.sh": "torchrun --nproc_per_node 8 train.py --output_dir o --fp16\n"},
        "train.py:10 warning"),
    bad("accelerate", {"train.py": ACCELERATE % ('mixed_precision="fp16"', "torch.float16")}, "train.py:9 warning"),
    bad("a scaler of torch", {"net.py": NET, "train.py": PLAIN % ("model.half()", "")}, "train.py:11 warning"),
    bad("a cast with the move", {
        "net.py": NET, "train.py": PLAIN % ("model.to(device, dtype=torch.float16)", "")}, "train.py:11 warning"),
    good("float32", {"train.py": TRAINER % ("torch.float32", "pass", "fp16=True")}),
    good("bfloat16", {"train.py": TRAINER % ("torch.bfloat16", "pass", "bf16=True")}),
    good("adapters", {"train.py": TRAINER % ("torch.float16", "model = get_peft_model(model, lora)", "fp16=True")}),
    good("DeepSpeed", {
        "train.py": TRAINER % ("torch.float16", "pass", 'fp16=True, deepspeed="ds.json"'),
        "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"},'
        ' "zero_optimization": {"stage": 2}}\n'}),
    good("no fp16 in the command", {
        "train.py": PARSED, "run.sh": "torchrun --nproc_per_node 8 train.py --output_dir o\n"}),
    good("the scaler is off", {"net.py": NET, "train.py": PLAIN % ("model.half()", "enabled=False")}),
    good("no mixed precision", {"train.py": ACCELERATE % ('mixed_precision="no"', "torch.float16")}),
)  # fmt: skip
