"""A fixed number of scheduler steps under the Trainer.

**What.** `scheduler.params.total_num_steps` is a number in a config that the transformers Trainer reads.

**Why it hurts.** The Trainer computes the number of optimizer steps from the data, the batch size, the ranks and the
epochs, compares it with the config, and stops with a `ValueError` where the two differ. The number in the file holds
for one size of data set on one number of GPUs.

**Fix.** `"auto"`: the Trainer fills in its own number.

**When it stays quiet.** Other readers. It is a warning, because the two may agree by chance or by care; where the
launch command states `--max_steps`, the comparison itself is made (hf-value-mismatch).

**Evidence.** `HfTrainerDeepSpeedConfig.trainer_config_finalize` in `transformers/integrations/deepspeed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL135",
    name="total-num-steps-fixed",
    kind="config",
    severity=Severity.WARNING,
    summary="A fixed `total_num_steps`, which the Trainer compares with its own number of steps",
    fix="unsafe",
    consumers=("hf",),
    depends_on_run=True,
    needs=("/scheduler/params/total_num_steps",),
)

_DS = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": 1000}
  },
  "zero_optimization": {"stage": 2}
}
"""

EXAMPLES = (
    bad(
        "1000 steps, whatever the data", {"ds.json": _DS}, "ds.json:6", fixed={"ds.json": _DS.replace("1000", '"auto"')}
    ),
    good("the Trainer fills it in", {"ds.json": _DS.replace("1000", '"auto"')}),
    good("plain DeepSpeed needs the number", {"ds.json": _DS.replace('"auto"', "8")}),
)

_POINTER = "/scheduler/params/total_num_steps"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """A number where the Trainer has its own."""
    steps = view_of(doc, context).number(_POINTER)
    if not steps.is_known:
        return
    edits = replace_value(doc, _POINTER, '"auto"')
    yield META.finding(
        doc.value(_POINTER),
        f"`total_num_steps` is fixed to {steps.get()}: the Trainer stops with a `ValueError` if it counts another"
        " number",
        hint='Write `"auto"`',
        fix=Fix('Write `"auto"`', edits, Safety.UNSAFE) if edits else None,
        pointer=_POINTER,
    )
