"""What a run really uses: the batch triangle as DeepSpeed works it out, and what is filled in for ``"auto"``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, absent, unknown
from dslint.model.deepspeed.batch import Batch, BatchVerdict, judge
from dslint.model.deepspeed.config import FILLED_BY_ACCELERATE, FILLED_BY_HF
from dslint.model.plan.hfargs import PAIRS
from dslint.model.plan.runplan import RunPlan
from dslint.parse.data import DataDoc, join_pointer

# Why a part of the arithmetic has no place.
DERIVED = "worked out from the other numbers"
OPEN_PART = "a part of the product is not known"
_REWRITTEN = "the script changes the config before it is used"
_BUCKETS = "computed from the hidden size of the model"


@dataclass(frozen=True, slots=True)
class Triangle:
    """train batch = micro batch x accumulation x world size; a part that nobody states has the reason ``DERIVED``.

    ``world`` is the number of ranks that DeepSpeed multiplies with. ``verdict`` is what DeepSpeed will say to the
    numbers as they are stated.
    """

    train: Fact[Any]
    micro: Fact[Any]
    steps: Fact[Any]
    world: Fact[Any]
    verdict: BatchVerdict

    @property
    def is_silent(self) -> bool:
        """Nobody says anything about batch sizes."""
        return self.train.is_absent and self.micro.is_absent


@dataclass(frozen=True, slots=True)
class Filled:
    """A value that the config leaves to its reader: the place of ``"auto"``, and what it will be."""

    pointer: str
    value: Fact[Any]


def triangle_of(plan: RunPlan) -> Triangle:
    """The batch triangle of a run, with the parts that nobody states worked out."""
    stated, world = _stated(plan), plan.world_size if plan.config is None else plan.batch_world
    if plan.config_is_rewritten:
        hidden: Fact[Any] = unknown(_REWRITTEN)
        return Triangle(hidden, hidden, hidden, world, BatchVerdict("ok"))
    # Without a config of DeepSpeed nobody judges the numbers.
    verdict = judge(stated, world) if plan.config is not None else BatchVerdict("ok")
    if verdict.is_wrong or (stated.train.is_absent and stated.micro.is_absent):
        return Triangle(stated.train, stated.micro, stated.steps, world, verdict)
    train, micro, steps = _completed(stated, world, _is_auto(plan, "/train_batch_size"))
    return Triangle(train, micro, steps, world, verdict)


def _stated(plan: RunPlan) -> Batch:
    """Where a Trainer runs without DeepSpeed, its arguments alone say the sizes."""
    if plan.config is not None or plan.consumer.get_or("") != "hf":
        return plan.batch
    values = {pair.pointer: pair.value(plan.arguments) for pair in PAIRS[:2]}
    return Batch(absent(), *(with_default(fact) for fact in values.values()))


def with_default(fact: Fact[Any]) -> Fact[Any]:
    """An argument of the Trainer without a place has its default."""
    is_default = fact.is_known and not fact.origins
    return Fact("known", fact.get(), (), "the default of `TrainingArguments`") if is_default else fact


def _completed(batch: Batch, world: Fact[Any], train_is_auto: bool) -> tuple[Fact[Any], Fact[Any], Fact[Any]]:
    """``DeepSpeedConfig._set_batch_related_parameters`` over facts."""
    train, micro, steps = batch.train, batch.micro, batch.steps
    if steps.is_absent and (train.is_absent or train_is_auto or micro.is_absent):
        steps = _derived(1)
    if train.is_absent or train_is_auto:
        return _product(micro, steps, world), micro, steps
    if micro.is_absent:
        return train, _quotient(train, steps, world), steps
    if steps.is_absent:
        return train, micro, _quotient(train, micro, world)
    return train, micro, steps


def _derived(value: Any) -> Fact[Any]:
    return Fact("known", value, (), DERIVED)


def _product(*parts: Fact[Any]) -> Fact[Any]:
    total = 1
    for part in parts:
        if not part.is_known:
            return unknown(OPEN_PART)
        total *= part.get()
    return _derived(total)


def _quotient(train: Fact[Any], *parts: Fact[Any]) -> Fact[Any]:
    divisor = _product(*parts)
    if not train.is_known or not divisor.is_known:
        return unknown(OPEN_PART)
    whole = divisor.get() > 0 and train.get() % divisor.get() == 0
    return _derived(int(train.get() // divisor.get())) if whole else unknown("the sizes do not fit")


def _is_auto(plan: RunPlan, pointer: str) -> bool:
    return plan.config is not None and plan.config.get(pointer) == "auto"


def filled_values(plan: RunPlan, triangle: Triangle) -> Iterator[Filled]:
    """What the reader of the config writes in place of each ``"auto"``, in the order of the config."""
    doc = plan.config
    if doc is None:
        return
    of_trainer = {pair.pointer: pair.value for pair in PAIRS}
    trains = plan.consumer.get_or("") == "hf"
    for pointer in _autos(doc):
        if plan.config_is_rewritten:
            value: Fact[Any] = unknown(_REWRITTEN)
        elif trains and pointer == "/train_batch_size":
            value = triangle.train
        elif trains and pointer in of_trainer:
            value = with_default(of_trainer[pointer](plan.arguments))
        else:
            value = unknown(_why(pointer, plan))
        yield Filled(pointer, unknown("nobody states it") if value.is_absent else value)


def _why(pointer: str, plan: RunPlan) -> str:
    reader = plan.consumer.get_or("")
    if reader == "deepspeed":
        return "plain DeepSpeed does not fill it"
    if pointer.endswith(("bucket_size", "persistence_threshold")):
        return _BUCKETS
    if pointer in FILLED_BY_ACCELERATE or (pointer in FILLED_BY_HF and reader == "accelerate"):
        return "accelerate fills it at run time"
    return plan.consumer.reason or "filled at run time"


def _autos(doc: DataDoc) -> Iterator[str]:
    """The pointers of all ``"auto"`` values."""
    open_nodes = [("", doc.data)]
    while open_nodes:
        pointer, value = open_nodes.pop()
        if isinstance(value, dict):
            open_nodes += [(join_pointer(pointer, key), inner) for key, inner in reversed(list(value.items()))]
        elif value == "auto":
            yield pointer
