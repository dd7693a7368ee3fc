"""`--bf16` or `--fp16` without the section in the DeepSpeed config.

**What.** The run passes `--bf16` or `--fp16` to the transformers Trainer, and its DeepSpeed config has no section of
that name. Off by default.

**Why it hurts.** accelerate adds the section later, so that the run trains in 16 bits. But code that asks the config
before (`HfTrainerDeepSpeedConfig.dtype()`, ZeRO-3 models made under `zero.Init`) gets fp32, and for fp16 accelerate
switches `auto_cast` on, which casts all inputs of the model.

**Fix.** Add `"bf16": {"enabled": "auto"}` (or fp16).

**When it stays quiet.** The section is there; the argument is not passed; where the precision is not known.

**Evidence.** `DeepSpeedPlugin.set_mixed_precision` in `accelerate/utils/dataclasses.py`; `dtype` in
`transformers/integrations/deepspeed.py`, transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.edits import insert_member
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL486",
    name="hf-precision-section-missing",
    kind="plan",
    severity=Severity.INFO,
    summary="`--bf16` or `--fp16` with a DeepSpeed config that has no such section",
    fix="unsafe",
    depends_on_run=True,
    optional=True,
    no_experiment="the run trains as it is told; what asks the config before is the model's own code",
    needs=("config",),
)

_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out %s\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
_WITH = _CONFIG.replace("}}", '}, "bf16": {"enabled": "auto"}}')

EXAMPLES = (
    bad("bf16 is requested", {"run.sh": _RUN % "--bf16 True", "train.py": TRAINER, "ds.json": _CONFIG},
        "ds.json:1 info", fixed={"ds.json": _WITH}),
    good("the section is there", {"run.sh": _RUN % "--bf16 True", "train.py": TRAINER, "ds.json": _WITH}),
    good("nothing is requested", {"run.sh": _RUN % "", "train.py": TRAINER, "ds.json": _CONFIG}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Both formats."""
    doc = plan.config
    if doc is None or plan.consumer.get_or("") != "hf" or plan.config_is_rewritten:
        return
    for name in ("bf16", "fp16"):
        asked = plan.arguments.get(name, absent())
        if asked.get_or(False) is not True or not asked.origins or not doc.fact(f"/{name}").is_absent:
            continue
        edits = insert_member(doc, "", name, '{"enabled": "auto"}')
        yield META.finding(
            doc.value("/zero_optimization") if doc.has("/zero_optimization") else doc.value(""),
            f"`{name}` is requested but the config has no section `{name}`: code that asks the config gets fp32",
            hint=f'Add `"{name}": {{"enabled": "auto"}}`',
            related=(asked.origins[0].labelled(f"{name} is requested"),),
            fix=Fix(f'Add `"{name}": {{"enabled": "auto"}}`', edits, Safety.UNSAFE) if edits else None,
        )
