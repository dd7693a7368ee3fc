"""Gradients are cleared before the backward inside `accelerator.accumulate`.

**What.** `with accelerator.accumulate(model):` begins with `optimizer.zero_grad()`; `accelerator.backward(loss)` and
`optimizer.step()` follow.

**Why it hurts.** The prepared optimizer leaves out `zero_grad` and `step` on all micro batches but the last of a step.
On that one `zero_grad` clears what the others have accumulated, and the step is made with the gradient of one micro
batch, divided by the accumulation steps. Nothing raises; with one micro batch a step nothing is wrong.

**Fix.** Clear the gradients after the step, at the end of the block.

**When it stays quiet.** `zero_grad` after the step; an Accelerator that accumulates nothing; DeepSpeed, which clears
the gradients itself; optimizers that were not prepared; a backward before the call, in the same block. A number of
steps that is 1 unless somebody passes another makes it an information.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches a step: the gradient of the step is that of the last
micro batch, a quarter of its size; with `zero_grad` after the step it is the mean of four.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.clearing import cleared_in_blocks

META = RuleMeta(
    code="DSL268",
    name="accumulated-gradients-cleared",
    kind="script",
    severity=Severity.WARNING,
    summary="`zero_grad` before the backward inside `accelerator.accumulate`: only the last micro batch counts",
    fix="safe",
    markers=(r"accelerat",),
    versions=("accelerate",),
    references=("https://github.com/meituan-longcat/LongCat-Image/issues/46",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where the parts of a block stand in helpers, fields and other files."""
    yield from cleared_in_blocks(run, META)


_TRAIN = """\
from accelerate import Accelerator


def train(args, model, optimizer, scheduler, loader):
    accelerator = Accelerator(%s)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    for batch in loader:
        with accelerator.accumulate(model):
%s
"""
_STEPS = "gradient_accumulation_steps=4"
_BODY = """\
            optimizer.zero_grad()
            accelerator.backward(model(batch).mean())
            optimizer.step()"""
_LATE = """\
            accelerator.backward(model(batch).mean())
            optimizer.step()
            optimizer.zero_grad()"""
_PARSED = """\
import argparse

from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--gradient_accumulation_steps", type=int, default=%d)
args = parser.parse_args()
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)


def train(model, optimizer, loader):
    optimizer, model, loader = accelerator.prepare(optimizer, model, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(model(batch).mean())
            optimizer.step()
"""

EXAMPLES = (
    bad(
        "cleared at the start of each micro batch",
        {"train.py": _TRAIN % (_STEPS, _BODY)},
        "train.py:9 error",
        fixed={"train.py": _TRAIN % (_STEPS, _LATE)},
    ),
    bad(
        "and once more after the step",
        {"train.py": _TRAIN % (_STEPS, f"{_BODY}\n            scheduler.step()\n            optimizer.zero_grad()")},
        "train.py:9 error",
        fixed={"train.py": _TRAIN % (_STEPS, _LATE.replace("step()\n", "step()\n            scheduler.step()\n"))},
    ),
    bad(
        "the parts of the block are in functions",
        {
            "train.py": _TRAIN % (_STEPS, "            step(accelerator, optimizer, model(batch).mean())")
            + "\n\ndef step(accelerator, optimizer, loss):\n    optimizer.zero_grad()\n    accelerator.backward(loss)\n"
            "    optimizer.step()\n"
        },
        "train.py:13 error",
    ),
    bad(
        "the number of micro batches is up to a config",
        {"train.py": _TRAIN % ("gradient_accumulation_steps=args.accumulation", _BODY)},
        "train.py:9 warning",
    ),
    bad("four unless somebody passes another number", {"train.py": _PARSED % 4}, "train.py:15 error"),
    bad("one unless somebody passes another number", {"train.py": _PARSED % 1}, "train.py:15 info"),
    good("cleared after the step", {"train.py": _TRAIN % (_STEPS, _LATE)}),
    good(
        "one micro batch a step",
        {
            "train.py": _TRAIN % ("gradient_accumulation_steps=1", _BODY),
            "plain.py": _TRAIN % ("mixed_precision='bf16'", _BODY),
            "default.py": _TRAIN.replace("loader):", "loader, steps=1):", 1)
            % ("gradient_accumulation_steps=steps", _BODY),
            "settings.py": "class Settings:\n    steps = 1\n\n\n"
            + _TRAIN % ("gradient_accumulation_steps=Settings.steps", _BODY),
        },
    ),
    good(
        "DeepSpeed clears the gradients itself",
        {
            "train.py": _TRAIN.replace("import Accelerator", "import Accelerator, DeepSpeedPlugin")
            % (f"{_STEPS}, deepspeed_plugin=DeepSpeedPlugin(zero_stage=2)", _BODY)
        },
    ),
    good(
        "between two backwards of a block",
        {
            "train.py": _TRAIN
            % (
                _STEPS,
                f"{_LATE}\n            accelerator.backward(model(-batch).mean())\n            optimizer.step()\n"
                "            optimizer.zero_grad()",
            )
        },
    ),
    good(
        "outside of the block",
        {
            "train.py": _TRAIN
            % (_STEPS, f"{_LATE}\n    optimizer.zero_grad()\n    accelerator.wait_for_everyone()")
        },
    ),
    good(
        "the gradients of something else",
        {"train.py": _TRAIN % (_STEPS, "            args.probe.zero_grad()\n" + _LATE)},
    ),
)  # fmt: skip

_PREPARED = frozenset({"prepared_optimizer", "prepared"})
_STEPS_WORD = "gradient_accumulation_steps"
_OTHER_WORDS = ("gradient_accumulation_plugin", "deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")
