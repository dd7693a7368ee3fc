"""What DeepSpeed does with a value that is not what its schema says: who looks at it, when, and how it ends."""

from __future__ import annotations

from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.model.deepspeed.config import FILLED_BY_HF, is_placeholder
from dslint.model.deepspeed.schema import Violation
from dslint.parse.data import DataDoc

_DIVIDES = "the first step divides by it and stops with a `ZeroDivisionError`"
# `PipelineEngine` asserts or compares with `is`, the converter to universal checkpoints looks at the type.
_EXACT = {
    "/pipeline/pipe_partitioned",
    "/pipeline/grad_partitioned",
    "/pipeline/use_reentrant",
    "/use_data_before_expert_parallelism",
}
BATCH_PLACES = {f"/{name}" for name in (TRAIN, MICRO, STEPS)}
# Values that are used as they are, and in every run; the sections are when they name a class.
_USED = {*BATCH_PLACES, "/gradient_clipping", "/gradient_predivide_factor", "/steps_per_print"}
BUILT = ("optimizer", "scheduler")
_NUMBERS = {
    *(f"/optimizer/params/{name}" for name in ("lr", "betas", "eps", "weight_decay")),
    *(f"/scheduler/params/{name}" for name in ("warmup_min_lr", "warmup_max_lr")),
}


def is_open(violation: Violation) -> bool:
    """Somebody else fills the value in. ``"auto"`` where nobody does is an error if DeepSpeed checks the value."""
    if violation.value == "auto":
        return not violation.raises or violation.pointer in FILLED_BY_HF
    return is_placeholder(violation.value)


def is_as_good(violation: Violation) -> bool:
    """1 and 0 where nobody validates: DeepSpeed only asks whether the value is true."""
    value = violation.value
    if isinstance(value, bool) or not isinstance(value, int) or value not in (0, 1):
        return False
    return "boolean" in violation.expected and violation.pointer not in _EXACT


def _ending(violation: Violation, plain: str | None) -> str:
    if violation.strict:
        return "a `ValidationError`"
    if plain or violation.pointer in BATCH_PLACES:
        return "a `TypeError`"
    return "an error"


def is_divisor(violation: Violation) -> bool:
    """The first step divides by the value."""
    return violation.pointer == "/steps_per_print" and isinstance(violation.value, (int, float)) and not violation.value


def is_used(doc: DataDoc, pointer: str) -> bool:
    """Every run comes by this value. Those of other sections wait for a feature: NVMe, the autotuner, a profiler."""
    section = pointer.split("/")[1]
    if section in BUILT:
        return isinstance(doc.get(f"/{section}/type"), str) and pointer != "/scheduler/params/last_batch_iteration"
    return pointer in _USED


def is_computed_with(doc: DataDoc, violation: Violation) -> bool:
    """Python computes with `true` as well, but not with two of them in place of a pair."""
    is_pair = violation.pointer == "/optimizer/params/betas"
    return (
        violation.pointer in _NUMBERS
        and is_used(doc, violation.pointer)
        and (is_pair or not isinstance(violation.value, bool))
    )


def is_compared(violation: Violation) -> bool:
    """The first step compares the value with a number."""
    return violation.pointer == "/gradient_clipping" and (
        violation.value is None or isinstance(violation.value, list | dict | str)
    )


def is_lowered(violation: Violation) -> bool:
    """``deepspeed.initialize`` asks the text for its small letters: the log level."""
    return violation.pointer == "/log_level" and violation.value is not None and not isinstance(violation.value, str)


def consequence(violation: Violation, plain: str | None, who: str) -> str:
    """How a run ends that has the value, in words; ``who`` says who stops, empty when nobody does at start-up."""
    if who:
        return f"{who} with {_ending(violation, plain)}"
    if is_divisor(violation):
        return _DIVIDES
    if is_lowered(violation):
        return "`deepspeed.initialize` stops with an `AttributeError`"
    if is_compared(violation):
        return "the first step stops with a `TypeError`"
    if plain in ("true", "false"):
        return 'every string counts as true, even `"false"`'
    if violation.pointer in _NUMBERS and not plain and not isinstance(violation.value, bool):
        return "the run stops at the first step at the latest"
    if plain:
        return "its first use stops with a `TypeError`"
    return "it takes the value as it is"
