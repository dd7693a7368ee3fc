"""Micro batches of a step in blocks of `accelerator.accumulate`."""

from __future__ import annotations

from dslint.core.finding import Severity
from dslint.python.events import Event
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import maker_of, uses_deepspeed
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import ACCELERATOR, MicroBatches, micro_batches

# With one of these something else steps.
_OTHERS = ("deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")


def steps_of(run: RunQuery, made: Event) -> MicroBatches | None:
    """Return the micro batches of a step where there are certainly several, or a number that somebody tells.

    `made` is the call that makes the block. Nothing is returned where DeepSpeed or Megatron may count.
    """
    accelerator = maker_of(run, made.receiver)
    steps = micro_batches(run, instances(made.receiver), ACCELERATOR) if accelerator is not None else None
    if accelerator is None or steps is None or uses_deepspeed(run, accelerator):
        return None
    if any(name in accelerator.arguments for name in _OTHERS):
        return None
    known = steps.known
    return None if known == 1 and (steps.count == 1 or steps.is_parameter) else steps


def severity_of(steps: MicroBatches) -> Severity | None:
    """Return an information where a step has one micro batch unless somebody passes another number."""
    return Severity.INFO if steps.count is None and steps.default == 1 else None
