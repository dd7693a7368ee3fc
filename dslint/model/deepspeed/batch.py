"""The batch triangle: train batch = micro batch x accumulation steps x world size.

The arithmetic of DeepSpeed's ``DeepSpeedConfig._set_batch_related_parameters`` and ``_batch_assertion`` over
facts: it says "wrong" only where no value of the unknown parts could satisfy DeepSpeed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.parse.data import DataDoc

Number: TypeAlias = "int | float"

TRAIN = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"

# Why nobody states a micro batch that accelerate takes from the loaders which it prepares.
FROM_LOADERS = "accelerate takes it from the loaders"

_CALLED = {MICRO: "micro batch", STEPS: "accumulation steps", "world": "world size"}


@dataclass(frozen=True, slots=True)
class Batch:
    """The three numbers as a config states them; ``"auto"`` is unknown, ``null`` is absent."""

    train: Fact[Number] = field(default_factory=absent)
    micro: Fact[Number] = field(default_factory=absent)
    steps: Fact[Number] = field(default_factory=absent)


@dataclass(frozen=True, slots=True)
class BatchVerdict:
    """What DeepSpeed will say.

    ``kind``: ``ok`` (as far as the facts reach) | ``missing`` (neither size is stated) | ``nonpositive`` |
    ``indivisible`` (no value of the part left open fits) | ``inconsistent`` (all parts known, product differs).
    ``message`` spells the arithmetic with origins; ``at`` is the number to blame, ``related`` the others, and
    ``name`` its config key.
    """

    kind: str
    message: str = ""
    at: Location | None = None
    related: tuple[Location, ...] = ()
    name: str = TRAIN

    @property
    def is_wrong(self) -> bool:
        """DeepSpeed refuses the numbers."""
        return self.kind != "ok"


OK = BatchVerdict("ok")


def accumulation_of(batch: Batch, world: Fact[int]) -> Fact[int]:
    """The micro batches that a step accumulates, stated or worked out as DeepSpeed does; absent without any size."""
    if not batch.steps.is_absent:
        steps = batch.steps.get_or(0)
        is_count = isinstance(steps, int) and not isinstance(steps, bool) and steps > 0
        return known(steps, *batch.steps.origins) if is_count and isinstance(steps, int) else unknown("not a number")
    if batch.train.is_absent and batch.micro.is_absent:
        return absent()
    if batch.train.is_absent or batch.micro.is_absent:
        return known(1, *batch.train.origins, *batch.micro.origins)
    if not (batch.train.is_known and batch.micro.is_known and world.is_known):
        return unknown("a part of the batch size is not known")
    a_step = batch.micro.get() * world.get()
    whole = a_step > 0 and batch.train.get() % a_step == 0
    return known(int(batch.train.get() // a_step), *batch.train.origins) if whole else unknown("the sizes do not fit")


def micro_batch_of(batch: Batch, world: Fact[int]) -> Fact[int]:
    """The samples of a micro batch on each process, stated or worked out as DeepSpeed does; absent without any size."""
    if batch.micro.is_known:
        size, origins = batch.micro.get(), batch.micro.origins
    elif batch.train.is_absent and batch.micro.is_absent:
        return absent()
    elif batch.micro.is_absent and batch.train.is_known and world.is_known and not batch.steps.is_unknown:
        a_sample = batch.steps.get_or(1) * world.get()
        whole = a_sample > 0 and batch.train.get() % a_sample == 0
        size, origins = (batch.train.get() // a_sample if whole else 0), batch.train.origins
    else:
        return unknown("a part of the batch size is not known")
    is_count = isinstance(size, int) and not isinstance(size, bool) and size > 0
    return known(int(size), *origins) if is_count else unknown("not a number")


def read_batch(doc: DataDoc) -> Batch:
    """The batch facts of a DeepSpeed config."""
    return Batch(*(number_fact(doc, f"/{key}") for key in (TRAIN, MICRO, STEPS)))


def number_fact(doc: DataDoc, pointer: str) -> Fact[Number]:
    """A plain number; ``null`` counts as absent because DeepSpeed's ``dict.get`` cannot tell the two apart."""
    fact: Fact[Any] = doc.fact(pointer)
    if not fact.is_known:
        return fact
    value = fact.get()
    if value is None:
        return absent()
    if isinstance(value, (int, float)):
        return known(value, *fact.origins)
    return unknown(f"{value!r} is not a number", *fact.origins)


def data_parallel_world(doc: DataDoc, world: Fact[int], reads_size: str = "yes") -> Fact[Number]:
    """The world size that DeepSpeed multiplies with: sequence parallel ranks share one sample.

    Unknown where pipeline parallelism, which the code configures, may divide the world further. The tensor parallel
    ranks of AutoTP count in full: ``deepspeed.initialize`` reads the config before it makes their groups.

    Args:
        reads_size: ``yes`` | ``no`` | ``maybe``: whether the release reads `sequence_parallel_size` (0.17.0 and later).
    """
    if not world.is_known:
        return Fact(world.state, None, world.origins, world.reason)
    if doc.has("/pipeline"):
        return unknown("pipeline stages divide the world size")
    sequence = number_fact(doc, "/sequence_parallel_size")
    if sequence.is_unknown:
        return unknown("the sequence parallel size is not a number")
    size = sequence.get_or(1)
    if reads_size == "maybe" and size != 1:
        return unknown("releases before 0.17.0 do not read the sequence parallel size")
    if size == 1 or isinstance(size, bool) or reads_size == "no":
        return Fact("known", world.get(), world.origins, world.reason)
    if size <= 0 or world.get() % size:
        return unknown("the sequence parallel size does not divide the world size")
    return Fact("known", world.get() // size, (*world.origins, *sequence.origins), world.reason)


def judge(batch: Batch, world: Fact[Any]) -> BatchVerdict:
    """Whether DeepSpeed accepts the numbers on ``world`` processes.

    A part that is absent (DeepSpeed derives it) or unknown leaves the test "is the train batch a multiple of
    the parts that are known", which is exact: the open part is a positive integer in either case.
    """
    for name, fact in ((TRAIN, batch.train), (MICRO, batch.micro), (STEPS, batch.steps)):
        if fact.is_known and not fact.get() > 0:
            return BatchVerdict(
                "nonpositive",
                f"`{name}` is {fact.get()}, but DeepSpeed asserts that it is greater than 0",
                _place(fact),
                name=name,
            )
    if batch.train.is_absent and batch.micro.is_absent:
        message = f"neither `{TRAIN}` nor `{MICRO}` is set, and DeepSpeed needs one of them to start"
        return BatchVerdict("missing", message, _place(batch.steps))
    if _is_fraction(batch.train) and batch.micro.is_absent and not _is_fraction(batch.steps):
        message = (
            f"`{TRAIN}` is {batch.train.get()}: DeepSpeed rounds the micro batch down, and its start-up assertion "
            "fails at any world size"
        )
        return BatchVerdict("indivisible", message, _place(batch.train))
    parts = [(MICRO, batch.micro), (STEPS, batch.steps), ("world", world)]
    stated = [(name, fact) for name, fact in parts if fact.is_known]
    if not batch.train.is_known or not stated or (world.is_known and not world.get() > 0):
        return OK
    return _compare(batch.train, stated, exact=len(stated) == len(parts))


def _compare(train: Fact[Number], parts: list[tuple[str, Fact[Any]]], exact: bool) -> BatchVerdict:
    product: Number = 1
    for _, fact in parts:
        product *= fact.get()
    total = train.get()
    try:
        fits = total == product if exact else total % product == 0
    except (OverflowError, ZeroDivisionError, ValueError):
        return OK
    if fits:
        return OK
    # Counted once each: with a shell variable two facts may come from one line.
    related = tuple(dict.fromkeys(_labelled(name, fact) for name, fact in parts if fact.origins))
    terms = " x ".join(f"{_CALLED[name]} {_spelled(fact)}" for name, fact in parts)
    equals = f" = {product}" if len(parts) > 1 else ""
    if exact:
        message = f"`{TRAIN}` is {total}, but {terms}{equals}: DeepSpeed stops at start-up"
        return BatchVerdict("inconsistent", message, _place(train), related)
    message = f"`{TRAIN}` {total} is not a multiple of {terms}{equals}: DeepSpeed stops at start-up"
    return BatchVerdict("indivisible", message, _place(train), related)


def _is_fraction(fact: Fact[Number]) -> bool:
    value = fact.get_or(1)
    return isinstance(value, float) and not value.is_integer()


def _place(fact: Fact[Any]) -> Location | None:
    return fact.origins[0] if fact.origins else None


def _labelled(name: str, fact: Fact[Any]) -> Location:
    return fact.origins[0].labelled(f"{_CALLED[name]} {fact.get()}")


def _spelled(fact: Fact[Any]) -> str:
    # A value without a place was stated on the command line; its fact may say by which option.
    said = fact.reason.replace("the default of `TrainingArguments`", "default") or "--world-size"
    return f"{fact.get()}" if fact.origins else f"{fact.get()} ({said})"
