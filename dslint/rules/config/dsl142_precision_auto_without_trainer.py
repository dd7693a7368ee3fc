"""`"auto"` for fp16 or bf16 where nobody fills it in.

**What.** `fp16.enabled` or `bf16.enabled` is `"auto"` in a config that plain `deepspeed.initialize` reads.

**Why it hurts.** `"auto"` is a word of transformers and accelerate, which replace it before DeepSpeed reads the config.
DeepSpeed itself drops every `"auto"` of a validated section: the switch is off, and the run silently trains in fp32,
at twice the memory and a fraction of the speed, or with other numbers than the run it is compared with.

**Fix.** Write `true` or `false`.

**When it stays quiet.** Where a Trainer or accelerate reads the config, and where it is not known who does. Where the
other format is switched on.

**Evidence.** `DeepSpeedConfigModel.__init__` in `deepspeed/runtime/config_utils.py`; run with DeepSpeed 0.19.8: the
weights of the engine are `torch.float32`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.precision import bf16_section, model_format
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL142",
    name="precision-auto-without-trainer",
    kind="config",
    severity=Severity.ERROR,
    summary='`"auto"` for fp16 or bf16 under plain DeepSpeed: the run silently trains in fp32',
    depends_on_run=True,
    consumers=("deepspeed",),
)

_AUTO = (
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},\n'
    ' "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}\n'
)
_RUN = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n"
_SCRIPT = """\
import argparse

import deepspeed
import torch

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""

EXAMPLES = (
    bad(
        "plain DeepSpeed drops the word",
        {"run.sh": _RUN, "train.py": _SCRIPT, "ds.json": _AUTO},
        "ds.json:2",
    ),
    good("transformers fill it in", {"ds.json": _AUTO.replace('": 4', '": "auto"')}),
    good(
        "the other format is on",
        {
            "run.sh": _RUN,
            "train.py": _SCRIPT,
            "ds.json": _AUTO.replace('"bf16"', '"fp16": {"enabled": true}, "bf16"'),
        },
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two switches."""
    view = view_of(doc, context)
    section = bf16_section(view)
    if model_format(view).get_or("") != "fp32":
        return
    for pointer in ("/fp16/enabled", f"{section}/enabled"):
        if view.is_auto(pointer):
            name = dotted_key(pointer)
            yield META.finding(
                doc.value(pointer),
                f'`{name}` is `"auto"`, which DeepSpeed itself does not fill in: the run silently trains in fp32',
                hint="Write `true` or `false`; only transformers and accelerate fill in `auto`",
                pointer=pointer,
            )
