"""**What.** A DeepSpeed config states a number that the Trainer of transformers takes from its own arguments
(learning rate, accumulation steps, clipping, precision, ...), and the two differ.

**Why it hurts.** The Trainer refuses to choose: after the model is loaded every rank stops with `ValueError: Please
correct the following DeepSpeed config values that mismatch TrainingArguments values`.

**Fix.** Write `"auto"` in the config: the argument then rules. The safe fix does that where every run of the config
passes the same value; where runs differ, a person should look.

**When it stays quiet.** When a value is `"auto"`, computed, assigned by the script, or filled from an unseen
argument; when a default is not certain because the script uses a subclass of `TrainingArguments` from elsewhere; with
`auto_find_batch_size`; and when the config is read by plain `deepspeed.initialize`. The number of warm-up steps is
compared where neither or only `warmup_steps` is set; no warm-up counts as 1 step since transformers 5.18.
`accelerate launch` does not change what is compared: its `--mixed_precision` and accumulation steps go to its own
plugin. Where it hands over a file without `gradient_accumulation_steps`, it adds 1, and the Trainer compares that.

**Evidence.** transformers `HfTrainerDeepSpeedConfig.fill_match`, called by `trainer_config_process` and
`trainer_config_finalize`; `DeepSpeedPlugin.__post_init__` of accelerate. A test asks the class itself about each pair;
the cases of `accelerate launch` were run with the Trainer of transformers 5.23.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member, replace_value
from dslint.model.plan.hfargs import PAIRS, WARMUP, Pair
from dslint.model.plan.recipe import starts
from dslint.model.plan.runplan import RunPlan
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL409",
    name="hf-value-mismatch",
    kind="plan",
    severity=Severity.ERROR,
    summary="A number in the DeepSpeed config differs from the argument that the Trainer compares it with",
    fix="safe",
    versions=("transformers>=4.6",),
    references=(
        "https://github.com/hiyouga/LlamaFactory/issues/201",
        "https://github.com/huggingface/transformers/issues/29348",
    ),
    depends_on_run=True,
    needs=("config",),
)

_STEPS = "/gradient_accumulation_steps"
_OWN_CLASS = TRAINER.replace("import HfArgumentParser, Trainer, TrainingArguments", "import HfArgumentParser, Trainer")
_OWN_CLASS = _OWN_CLASS.replace("\n\n", "\n\nfrom recipes.arguments import TrainingArguments\n\n", 1)
_RUN = """\
torchrun --nproc_per_node 8 train.py \\
    --deepspeed ds.json \\
    --output_dir out \\
    --bf16 True \\
    --per_device_train_batch_size 4 \\
    --gradient_accumulation_steps 2
"""
_CONFIG = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
"""
_JOB = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun " + _RUN.replace(
    "torchrun --nproc_per_node 8", "python"
)
_PLAIN = """\
import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""
_OF_FILE = """\
import argparse
import json

from transformers import Trainer, TrainingArguments

from mine import data, model

parser = argparse.ArgumentParser()
parser.add_argument("--conf")
parser.add_argument("--deepspeed")
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
with open(args.conf) as file:
    conf = json.load(file)
arguments = TrainingArguments(
    output_dir="out", bf16=conf["bf16"], gradient_accumulation_steps=conf["steps"], deepspeed=args.deepspeed
)
Trainer(model=model, args=arguments, train_dataset=data).train()
"""

EXAMPLES = (
    bad("4 accumulation steps here, 2 there", {"run.sh": _RUN, "train.py": TRAINER, "ds.json": _CONFIG}, "ds.json:4",
        fixed={"ds.json": _CONFIG.replace("4", '"auto"')}),
    bad("bf16 in the config only", {
        "run.sh": _RUN.replace("    --bf16 True \\\n", ""),
        "train.py": TRAINER,
        "ds.json": _CONFIG.replace("4", "2"),
    }, "ds.json:5", fixed={"ds.json": _CONFIG.replace("4", "2").replace("true", '"auto"')}),
    bad("accelerate adds 1 to a file that does not say it", {
        "run.sh": "accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py --output_dir out "
                  "--bf16 True --gradient_accumulation_steps 2\n",
        "train.py": TRAINER,
        "ds.json": '{\n  "zero_optimization": {"stage": 2}\n}\n',
    }, "ds.json:1", fixed={
        "ds.json": '{\n  "zero_optimization": {"stage": 2},\n  "gradient_accumulation_steps": "auto"\n}\n',
    }),
    bad("the tasks of a Slurm job", {"job.sbatch": _JOB, "train.py": TRAINER, "ds.json": _CONFIG}, "ds.json:4 error",
        fixed={"ds.json": _CONFIG.replace("4", '"auto"')}),
    bad("values that the script reads in a file", {
        "run.sh": "deepspeed train.py --conf conf.json --deepspeed ds.json\n", "train.py": _OF_FILE,
        "conf.json": '{"steps": 2, "bf16": true}\n', "ds.json": _CONFIG,
    }, "ds.json:4 error"),
    good("the same in both files", {
        "run.sh": "deepspeed train.py --conf conf.json --deepspeed ds.json\n", "train.py": _OF_FILE,
        "conf.json": '{"steps": 4, "bf16": true}\n', "ds.json": _CONFIG,
    }),
    good("a loop of its own starts DeepSpeed with the file", {
        "run.sh": _RUN, "ds.json": _CONFIG,
        "train.py": "from loop import Loop\n" + TRAINER.replace(" Trainer,", "").replace("Trainer(", "Loop("),
        "loop.py": "import deepspeed\n\n\nclass Loop:\n    def __init__(self, model, args):\n        self.args = args\n"
        "        self.model, *_ = deepspeed.initialize(model=model, config=args.deepspeed)\n",
    }),
    good("the same numbers", {"run.sh": _RUN, "train.py": TRAINER, "ds.json": _CONFIG.replace("4", "2")}),
    good("the Trainer fills the config", {
        "run.sh": _RUN,
        "train.py": TRAINER,
        "ds.json": _CONFIG.replace("4", '"auto"').replace("true", '"auto"'),
    }),
    good("1 equals 1.0, the default of `max_grad_norm`", {
        "run.sh": _RUN,
        "train.py": TRAINER,
        "ds.json": _CONFIG.replace("4,", '2,\n  "gradient_clipping": 1,'),
    }),
    good("defaults of a class from elsewhere are not known", {
        "run.sh": _RUN.replace("    --bf16 True \\\n", ""),
        "train.py": _OWN_CLASS,
        "recipes/arguments.py": "from trl import SFTConfig as TrainingArguments\n",
        "ds.json": _CONFIG.replace("4", "2"),
    }),
    good("without the Trainer the config alone counts", {
        "run.sh": "deepspeed --num_gpus 8 train.py --gradient_accumulation_steps 2 --deepspeed_config ds.json\n",
        "train.py": _PLAIN,
        "ds.json": '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}\n',
    }),
)  # fmt: skip


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Compare every number of the config with its argument."""
    doc = plan.config
    if doc is None or plan.consumer.get_or("") != "hf" or plan.config_is_rewritten:
        return
    if _lacks_steps(plan, doc):
        yield _without_steps(plan, doc)
    least = {"yes": (1,), "no": (0,)}.get(view_of(doc, context).runs(">=5.18", of="transformers"), (0, 1))
    for pair in PAIRS:
        if not _differs(doc, pair, plan.arguments, least):
            continue
        peers = [p for p in plan.peers if _same(pair, p.arguments, plan.arguments) and p.consumer == plan.consumer]
        if any(peer.is_earlier for peer in peers):
            continue  # Said once for all runs that pass the same value.
        yield _finding(plan, doc, pair, [p.command.location for p in peers])


def _differs(doc: DataDoc, pair: Pair, arguments: Mapping[str, Fact[Any]], least: tuple[int, ...]) -> bool:
    """``least``: what no warm-up may count as, in the releases of transformers that may run."""
    value, stated = pair.value(arguments), doc.get(pair.pointer)
    if not value.is_known or stated is None or stated == "auto":
        return False
    if pair.pointer == WARMUP and value.get() == 0:
        return stated not in least
    return bool(stated != value.get())


def _lacks_steps(plan: RunPlan, doc: DataDoc) -> bool:
    """The plugin of accelerate adds 1 accumulation step to a file without the key, before the Trainer compares."""
    if plan.command.launcher != "accelerate" or plan.recipe is not None or doc.is_embedded or doc.has(_STEPS):
        return False
    by_script = plan.profile is None or "deepspeed" in plan.profile.constructed.values or plan.profile.config_dests
    if by_script or plan.command.script_flag("--deepspeed") is not None or plan.command.may_hide_flags():
        return False
    steps = plan.arguments.get("gradient_accumulation_steps", absent())
    return bool(steps.is_known and steps.get() != 1)


def _without_steps(plan: RunPlan, doc: DataDoc) -> Finding:
    steps, key = plan.arguments["gradient_accumulation_steps"], _STEPS[1:]
    edits = insert_member(doc, "", key, '"auto"')
    return META.finding(
        doc.value(""),
        f"`{key}` is missing here (accelerate assumes 1) but the argument is {steps.get()}: the Trainer stops with a "
        "ValueError",
        hint=f'Add `"{key}": "auto"`: the argument then fills it',
        related=tuple(o.labelled(f"{key} {steps.get()}") for o in steps.origins),
        fix=Fix(f'Add `"{key}": "auto"`', edits) if edits else None,
        severity=Severity.WARNING if plan.command.in_docs else None,
        pointer=_STEPS,
        facts={"shows": "later", "consumer": "hf"},
    )


def _same(pair: Pair, theirs: Any, ours: Any) -> bool:
    a, b = pair.value(theirs), pair.value(ours)
    return a.is_known and b.is_known and bool(a.get() == b.get())


def _finding(plan: RunPlan, doc: DataDoc, pair: Pair, others: list[Location]) -> Finding:
    value = pair.value(plan.arguments)
    key = dotted_key(pair.pointer)
    source = f"{value.get()}" if value.origins else f"{value.get()} by default"
    if pair.pointer == WARMUP and value.get() == 0:
        source += " (1 since transformers 5.18)"
    related = tuple(o.labelled(f"{pair.called} {value.get()}") for o in value.origins)
    command = plan.command.location
    if all(place.path != command.path for place in related):
        related = (*related, starts(plan.command))
    related = (*related, *(place.labelled("another run with the same value") for place in others[:5]))
    return META.finding(
        doc.value(pair.pointer),
        f"`{key}` is {_shown(doc.get(pair.pointer))} here but `{pair.called}` is {source}: the Trainer stops with a "
        "ValueError",
        hint=f'Set `{key}` to `"auto"`: the argument then fills it',
        related=related,
        fix=_fix(plan, doc, pair, key),
        severity=Severity.WARNING if plan.command.in_docs else None,
        pointer=pair.pointer,
        facts=_facts(plan, value.get()),
    )


def _facts(plan: RunPlan, value: object) -> dict[str, str | int | float | bool | None]:
    world = plan.world_size
    return {"consumer": "hf", "value": json.dumps(value), "world": world.get_or(None)}


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    return text or (f'"{value}"' if isinstance(value, str) else f"{value}")


def _fix(plan: RunPlan, doc: DataDoc, pair: Pair, key: str) -> Fix | None:
    """``"auto"`` lets the argument rule. Where runs pass different values the author may have meant the number."""
    edits = replace_value(doc, pair.pointer, '"auto"')
    if not edits:
        return None
    agreed = all(
        peer.consumer.get_or("") == "hf" and _same(pair, peer.arguments, plan.arguments) for peer in plan.peers
    )
    return Fix(f'Set `{key}` to `"auto"`', edits, Safety.SAFE if agreed else Safety.UNSAFE)
