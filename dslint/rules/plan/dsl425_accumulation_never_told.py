"""**What.** A file of arguments or an option says `gradient_accumulation_steps: 8`, the script trains inside
`accelerator.accumulate(model)`, and its `Accelerator(...)` gets no number; nor does a flag of `accelerate launch`, its
file or the DeepSpeed config say one.

**Why it hurts.** An `Accelerator` without the number has 1: `accumulate` steps after each micro batch. The batch is
eight times smaller than the file says, with the learning rate of the large one, and nothing reports it.

**Fix.** `Accelerator(gradient_accumulation_steps=...)` with the number of the file, and `"auto"` in a DeepSpeed
config.

**When it stays quiet.** When a plugin, a variable, `**options` or an attribute may tell it, for scripts that count
micro batches themselves, for several `Accelerator`s, and when nobody knows the file or the number.

**Evidence.** accelerate 1.15, run in one process on the CPU: `Accelerator().gradient_accumulation_steps` is 1, and
`sync_gradients` is true in each turn of `accumulate`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL425",
    name="accumulation-never-told",
    kind="plan",
    severity=Severity.WARNING,
    summary="Accumulation steps of a file or option that the Accelerator of the script is never told",
    depends_on_run=True,
    references=("https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation",),
    no_experiment="one process shows it: `sync_gradients` of accelerate is true in every turn",
    needs=("lost_accumulation",),
)

_TRAIN = """\
import argparse

import yaml
from accelerate import Accelerator

from mine import Net, batches, optimizer_of

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/train.yaml")
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()
config = yaml.safe_load(open(args.config))
accelerator = Accelerator(%s)
net = Net(config)
model, optimizer, loader = accelerator.prepare(net, optimizer_of(net, config), batches(config))
print("accumulates", args.gradient_accumulation_steps)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch))
        optimizer.step()
        optimizer.zero_grad()
"""
_CONF = "train:\n  lr: 0.0001\n  gradient_accumulation_steps: 8\n"
_RUN = "accelerate launch --multi_gpu --num_processes 8 train.py"
_DS = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}\n'


def _files(arguments: str = "", run: str = f"{_RUN}\n", conf: str = _CONF) -> dict[str, str]:
    return {"run.sh": run, "train.py": _TRAIN % arguments, "conf/train.yaml": conf}


EXAMPLES = (
    bad("a file that an option names", _files(run=f"{_RUN} --config conf/train.yaml\n"), "conf/train.yaml:3"),
    bad("the default of the option", _files('mixed_precision="bf16"'), "conf/train.yaml:3"),
    bad("an option", _files(run=f"{_RUN} --gradient_accumulation_steps 4\n", conf="lr: 0.1\n"), "run.sh:1"),
    bad("a DeepSpeed config that says 1", {
        **_files(run="accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py\n"), "ds.json": _DS,
    }, "conf/train.yaml:3"),
    good("it is told", _files('gradient_accumulation_steps=config["train"]["gradient_accumulation_steps"]')),
    good("options that nobody sees", _files("**config")),
    good("no accumulation", _files(conf="train:\n  gradient_accumulation_steps: 1\n")),
    good("a flag of the launcher", _files(run=(
        "accelerate launch --use_deepspeed --num_processes 8 --gradient_accumulation_steps 8 train.py\n"
    ))),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The number that is stated, and where it is missing."""
    lost = plan.lost_accumulation
    if lost is not None:
        yield META.finding(
            lost.stated,
            f"`{lost.name}` is {lost.steps}, and the `Accelerator` is not told: it steps after each micro batch",
            hint="Pass `gradient_accumulation_steps` to `Accelerator(...)`",
            related=(lost.made,),
            severity=Severity.INFO if plan.command.in_docs else None,
        )
