"""**What.** A run on several machines writes its checkpoints below `/tmp`, `/dev/shm` or `/local`, which each machine
has for itself: by an option, in a file of arguments of the Trainer, or in `TrainingArguments(...)`.

**Why it hurts.** DeepSpeed writes one part for each rank, and the file `latest` on the first machine only: what is
written to disks of their own cannot be loaded again, and a resumed run waits for files that are elsewhere. With
`load_best_model_at_end` (a warning) the Trainer writes the checkpoints on the first machine only. At the end the ranks
of the others do not find the best one, keep their last weights with a line in the log, and what is evaluated then mixes
two models; some releases stop.

**Fix.** A folder on a file system that all machines share; or `"checkpoint": {"use_node_local_storage": true}` in the
config with the same machines in the same order on resume; `save_on_each_node: true` for the Trainer.

**When it stays quiet.** On one machine, for folders that are not known, and when the config or `--save_on_each_node`
says that local disks are meant.

**Evidence.** `DeepSpeedEngine.save_checkpoint` in `deepspeed/runtime/engine.py`; `Trainer._load_best_model` in
transformers/trainer.py: `Could not locate the best model at ..., if you are running a distributed training on multiple
nodes, you should activate --save_on_each_node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL418",
    name="output-on-one-machine",
    kind="plan",
    severity=Severity.INFO,
    summary="A run on several machines writes its checkpoints to a disk of each machine",
    references=(
        "https://www.deepspeed.ai/docs/config-json/#checkpoint-options",
        "https://github.com/hiyouga/LlamaFactory/issues/5757",
    ),
    depends_on_run=True,
    no_experiment="it takes two machines with disks of their own",
    needs=(
        *("--output_dir", "--save_dir", "--save", "--checkpoint_dir", "--ckpt_dir", "--work_dir", "--save_path"),
        *("recipe", "profile"),
    ),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = (
    "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 train.py"
    " --output_dir /tmp/out\n"
)
_FILED = _RUN.replace("--output_dir /tmp/out", "args.yaml")
_PARSES = """\
import sys

from transformers import HfArgumentParser, Trainer, TrainingArguments


def main(path):
    (args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
    Trainer(None, args).train()


main(sys.argv[1])
"""
_ARGUMENTS = "output_dir: /local/run\nload_best_model_at_end: true\nper_device_train_batch_size: 8\n"
_MADE = """\
from transformers import Trainer, TrainingArguments

args = TrainingArguments(output_dir="/tmp/run", load_best_model_at_end=True, deepspeed="ds.json")
Trainer(None, args).train()
"""

EXAMPLES = (
    bad("/tmp on two machines", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 info"),
    bad("another disk of each machine", {"run.sh": _RUN.replace("/tmp", "/local/me"), **_SCRIPT}, "run.sh:1 info"),
    bad(
        "the best one at the end",
        {"run.sh": _RUN.replace("/out", "/out --load_best_model_at_end True"), **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "in a file of arguments that the script parses alone",
        {"run.sh": _FILED, "train.py": _PARSES, "args.yaml": _ARGUMENTS},
        "args.yaml:1 warning",
    ),
    bad(
        "in the script",
        {
            "run.sh": _FILED,
            "train.py": _MADE,
            "ds.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
        },
        "train.py:3 warning",
    ),
    good(
        "each machine saves",
        {"run.sh": _FILED, "train.py": _PARSES, "args.yaml": _ARGUMENTS + "save_on_each_node: true\n"},
    ),
    good("one machine", {"run.sh": "torchrun --nproc_per_node 8 train.py --output_dir /tmp/out\n", **_SCRIPT}),
    good("a shared folder", {"run.sh": _RUN.replace("/tmp", "/mnt/shared"), **_SCRIPT}),
    good("a folder that is not known", {"run.sh": _RUN.replace("/tmp", "$OUT"), **_SCRIPT}),
    good("each machine is meant to save", {"run.sh": _RUN.replace("/out", "/out --save_on_each_node True"), **_SCRIPT}),
)

_FLAGS = ("--output_dir", "--save_dir", "--save", "--checkpoint_dir", "--ckpt_dir", "--work-dir", "--save_path")
_LOCAL = (
    "/tmp/",
    "/dev/shm/",
    "/var/tmp/",
    "/local/",
    "/localscratch/",
    "/local_scratch/",
    "/scratch/local/",
    "/nvme/",
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The folder of the checkpoints of a run on several machines."""
    folder = _folder(plan) if plan.nodes.get_or(1) > 1 else absent()
    text = folder.get_or(None)
    if not isinstance(text, str) or not f"{text}/".startswith(_LOCAL) or not folder.origins:
        return
    each = _stated(plan, "save_on_each_node")
    if not each.is_absent and each.get_or(True) is not False:
        return
    if plan.config is not None and plan.config.get("/checkpoint/use_node_local_storage"):
        return
    best = _stated(plan, "load_best_model_at_end")
    asks = best.get_or(False) is True
    effect = (
        "the other ones do not find the best model at the end"
        if asks
        else "the parts of a checkpoint lie on different disks"
    )
    yield META.finding(
        folder.origins[0],
        f"`{text}` is local to each of the {plan.nodes.get()} machines: {effect}",
        hint="Set `save_on_each_node`, or write to a file system that all machines share"
        if asks
        else "Write to a file system that all machines share",
        related=(
            *(o.labelled("the number of machines") for o in plan.nodes.origins),
            *(o.labelled("the best checkpoint is loaded at the end") for o in best.origins if asks),
        ),
        severity=Severity.WARNING if asks else None,
    )


def _folder(plan: RunPlan) -> Fact[Any]:
    flag = plan.command.script_flag(*_FLAGS)
    if flag is None:
        return _stated(plan, "output_dir")
    text = flag.value.text if flag.value is not None else None
    return (
        known(text, flag.value.location) if flag.value is not None and text is not None else unknown("not known here")
    )


def _stated(plan: RunPlan, name: str) -> Fact[Any]:
    """What the command, its file of arguments or the script says of an argument of the Trainer."""
    flag = plan.command.script_flag(f"--{name}")
    if flag is not None:
        text = flag.value.text if flag.value is not None else "true"
        words: dict[str | None, Any] = {"true": True, "false": False}
        return (
            known(words.get(str(text).lower(), text), flag.location) if text is not None else unknown("not known here")
        )
    if plan.recipe is not None and plan.recipe.has(f"/{name}"):
        return plan.recipe.fact(f"/{name}")
    values = plan.profile.constructed.values if plan.profile is not None else {}
    return values.get(name, absent())
