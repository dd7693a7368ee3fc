"""**What.** A launcher and a script disagree on how the process learns its local rank. `deepspeed` appends
`--local_rank=N` to the arguments of the script, `torch.distributed.launch` appends `--local-rank=N`, and `torchrun` and
`accelerate launch` append nothing and set `LOCAL_RANK`.

**Why it hurts.** An argument that the parser does not know ends every process: `error: unrecognized arguments:
--local_rank=0`. An argument that never comes keeps its default: `args.local_rank` is -1 in every process, each believes
it is the only one and trains alone; or it is 0, and all of them work on GPU 0. `fire.Fire(train)` calls the function
first and complains afterwards, `Could not consume arg: --local-rank=0`: the run fails at its end, and the first rank
that gets there makes the launcher stop the others while they save.

**Fix.** `parser.add_argument("--local_rank", "--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))`
works under all of them. Where the script declares neither spelling, the safe fix adds the argument; `deepspeed
--no_local_rank` and `torch.distributed.launch --use_env` (or `torchrun`) spare it.

**When it stays quiet.** When the parser may know more than the project shows (`parse_known_args`, subparsers, a
helper of a library, `TrainingArguments`, which have the field, `**kwargs` under fire); scripts without a parser; with
`--no_local_rank`, `--use_env`, or an MPI launcher of DeepSpeed; and for the missing value, when the script reads
`LOCAL_RANK`, assigns
`args.local_rank`, or leaves the device to DeepSpeed, accelerate, transformers, Lightning or mmengine, when the
command passes the argument, and for one process.

**Evidence.** The launchers of DeepSpeed 0.19.8 and torch 2.13: `unrecognized arguments: --local_rank=0` and
`--local-rank=0`; under torchrun two processes with the default -1 are each in a world of 1, and with 0 both choose
device 0. Reports: https://github.com/huggingface/pytorch-image-models/issues/1724,
https://github.com/AILab-CVC/GPT4Tools/issues/18.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.core.source import Location
from dslint.model.context import Context, VersionFact
from dslint.model.launch.localrank import LEGACY, adds_local_rank, is_legacy_launch
from dslint.model.plan.localrank import LocalRank
from dslint.model.plan.runplan import RunPlan
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL413",
    name="local-rank-argument",
    kind="plan",
    severity=Severity.ERROR,
    summary="The launcher passes the local rank in a way that the script does not read",
    fix="safe",
    references=(
        "https://github.com/huggingface/pytorch-image-models/issues/1724",
        "https://www.deepspeed.ai/getting-started/#launching-deepspeed-training",
    ),
    depends_on_run=True,
    needs=("local_rank",),
)

_HEAD = "import argparse\n\nparser = argparse.ArgumentParser()\n"
_LR = 'parser.add_argument("--lr", type=float)\n'
_BOTH = 'parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)\n'
_RANK = 'parser.add_argument("--local_rank", type=int, default=-1)\n'
_PARSE = "args = parser.parse_args()\n"
_ALONE = (
    "import argparse\n\nimport torch\nimport torch.distributed as dist\n\nparser = argparse.ArgumentParser()\n"
    + _RANK
    + _PARSE
    + "if args.local_rank != -1:\n    torch.cuda.set_device(args.local_rank)\n"
    "    dist.init_process_group('nccl')\n"
)
_DEEPSPEED = "deepspeed --num_gpus 4 train.py --lr 0.1\n"
_LAUNCH = "python -m torch.distributed.launch --nproc_per_node 4 train.py --lr 0.1\n"
_TORCHRUN = "torchrun --nproc_per_node 4 train.py\n"

_FIELDS = (
    "from dataclasses import dataclass\n\nfrom transformers import HfArgumentParser\n\n\n"
    "@dataclass\nclass Arguments:\n    lr: float = 0.1\n\n\n"
    "(arguments,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
)
_FIRE = "import fire\n\n\ndef train(lr=0.1%s):\n    print(lr)\n\n\nif __name__ == '__main__':\n    fire.Fire(train)\n"
_CLASS = (
    "from fire import Fire\n\n\nclass Job:\n    def __init__(self, lr=0.1%s):\n        self.lr = lr\n\n"
    "    def train(self):\n        print(self.lr)\n\n\nif __name__ == '__main__':\n    Fire(Job)\n"
)

EXAMPLES = (
    bad("the deepspeed launcher, and a parser that does not know the argument", {
        "train.py": _HEAD + _LR + _PARSE, "run.sh": _DEEPSPEED,
    }, "run.sh:1 error", fixed={"train.py": _HEAD + _BOTH + _LR + _PARSE}),
    bad("torch.distributed.launch", {"train.py": _HEAD + _LR + _PARSE, "run.sh": _LAUNCH}, "run.sh:1 error",
        fixed={"train.py": _HEAD + _BOTH + _LR + _PARSE}),
    bad("the spelling of torch 1, and torch 2", {
        "train.py": _HEAD + _LR + _RANK + _PARSE, "run.sh": _LAUNCH, "requirements.txt": "torch==2.4.0\n",
    }, "run.sh:1 error"),
    bad("the spelling of torch 1, and a torch that nobody states", {
        "train.py": _HEAD + _LR + _RANK + _PARSE, "run.sh": _LAUNCH,
    }, "run.sh:1 warning"),
    bad("torchrun passes nothing, and every process believes that it is alone", {
        "train.py": _ALONE, "run.sh": _TORCHRUN,
    }, "run.sh:1 warning"),
    bad("torchrun passes nothing, and every process takes GPU 0", {
        "train.py": _ALONE.replace("default=-1", "default=0").replace("if args.local_rank != -1:", "if True:"),
        "run.sh": _TORCHRUN,
    }, "run.sh:1 warning"),
    bad("a parser that another module builds", {
        "options.py": _HEAD.replace("\nparser", "\n\ndef get_args():\n    parser")
        + f"    {_LR}    return parser.parse_args()\n",
        "train.py": "from options import get_args\n\nargs = get_args()\n", "run.sh": _DEEPSPEED,
    }, "run.sh:1 error"),
    bad("dataclasses without a field for it", {"train.py": _FIELDS, "run.sh": _DEEPSPEED}, "run.sh:1 error"),
    bad("a function behind fire", {"train.py": _FIRE % "", "run.sh": _LAUNCH}, "run.sh:1 error"),
    bad("a class behind fire", {"train.py": _CLASS % "", "run.sh": _DEEPSPEED + "\n"}, "run.sh:1 error"),
    bad("a function of another module behind fire", {
        "job.py": "def train(lr=0.1):\n    print(lr)\n",
        "train.py": "import fire\n\nfrom job import train\n\nfire.Fire(component=train)\n", "run.sh": _LAUNCH,
    }, "run.sh:1 error"),
    good("fire with the parameter, or with any", {
        "train.py": _FIRE % ", local_rank=0", "other.py": _FIRE % ", **rest",
        "third.py": _CLASS % ", local_rank=0",
        "run.sh": _LAUNCH + _LAUNCH.replace("train.py", "other.py") + _DEEPSPEED.replace("train.py", "third.py"),
    }),
    good("fire under torchrun", {"train.py": _FIRE % "", "run.sh": _TORCHRUN}),
    good("TrainingArguments have the field", {
        "train.py": _FIELDS.replace("HfArgumentParser\n", "HfArgumentParser, TrainingArguments\n").replace(
            "(Arguments)", "((Arguments, TrainingArguments))").replace("(arguments,)", "arguments, training_arguments"),
        "run.sh": _DEEPSPEED.replace("0.1", "0.1 --output_dir out"),
    }),
    good("both spellings", {"train.py": _HEAD + _BOTH + _LR + _PARSE, "run.sh": _LAUNCH + _DEEPSPEED}),
    good("the spelling of DeepSpeed", {"train.py": _HEAD + _RANK + _LR + _PARSE, "run.sh": _DEEPSPEED}),
    good("told not to", {
        "train.py": _HEAD + _LR + _PARSE,
        "run.sh": "deepspeed --no_local_rank train.py\n" + _LAUNCH.replace("--nproc", "--use_env --nproc"),
    }),
    good("a parser that lets unknown arguments pass", {
        "train.py": _HEAD + _LR + "args, _ = parser.parse_known_args()\n", "run.sh": _DEEPSPEED,
    }),
    good("no parser", {"train.py": "import torch\n\nprint(torch.ones(1))\n", "run.sh": _DEEPSPEED}),
    good("the spelling of torch 1, and torch 1", {
        "train.py": _HEAD + _LR + _RANK + _PARSE, "run.sh": _LAUNCH, "requirements.txt": "torch==1.13.1\n",
    }),
    good("the spelling of torch 1, and a Python that torch 2 does not run on", {
        "train.py": _HEAD + _LR + _RANK + _PARSE, "run.sh": _LAUNCH.replace("python", "python3.6"),
    }),
    good("torchrun, and a script that reads the environment", {
        "train.py": _ALONE.replace("import argparse\n", "import argparse\nimport os\n").replace(
            "default=-1", "default=int(os.environ.get('LOCAL_RANK', -1))"),
        "run.sh": _TORCHRUN,
    }),
    good("torchrun, and DeepSpeed finds the rank", {
        "train.py": _ALONE.replace("import torch\n", "import deepspeed\nimport torch\n", 1), "run.sh": _TORCHRUN,
    }),
    good("torchrun for one process", {"train.py": _ALONE, "run.sh": _TORCHRUN.replace("4", "1")}),
)  # fmt: skip

_DECLARE = 'Declare `parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)`'
# torch 2.0 needs Python 3.8.
_OLD_PYTHON = re.compile(r"(?:^|/)python(?:2|3\.[0-7]$)")


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Compare what the launcher passes with what the parser takes."""
    found, command = plan.local_rank, plan.command
    if found is None or command.script is None:
        return
    if command.launcher == "deepspeed":
        if "--local_rank" not in found.accepts and adds_local_rank(command):
            yield _refused(plan, found, "the deepspeed launcher", "--local_rank", None)
    elif is_legacy_launch(command):
        if adds_local_rank(command):
            yield from _legacy(plan, found, context.libraries.get("torch") or VersionFact())
    elif command.script_flag("--local_rank") is None and not command.may_hide_flags():
        yield from _never_passed(plan, found)


def _legacy(plan: RunPlan, found: LocalRank, torch: VersionFact) -> Iterator[Finding]:
    """``--local-rank=N`` since torch 2.0, ``--local_rank=N`` before."""
    if not found.accepts:
        yield _refused(plan, found, f"`{LEGACY}`", "--local-rank", None)
    elif "--local-rank" not in found.accepts:
        is_new = covers(torch, ">=2.0", "torch") if torch.is_known else "maybe"
        if any(_OLD_PYTHON.search(word.text or "") for word in plan.command.words):
            is_new = "no"
        if is_new != "no":
            severity = None if is_new == "yes" else Severity.WARNING
            yield _refused(plan, found, f"`{LEGACY}`", "--local-rank", severity)


def _refused(plan: RunPlan, found: LocalRank, launcher: str, flag: str, severity: Severity | None) -> Finding:
    since = " since torch 2.0" if found.accepts else ""
    ends = f"fire refuses it when `{found.called}` has returned" if found.called else "the script refuses it"
    hint = f"Give `{found.called}` a parameter `local_rank`, or start it with `torchrun`" if found.called else _DECLARE
    fix = Fix("Declare the local rank in both spellings", (found.insertion,)) if found.insertion else None
    return META.finding(
        _place(plan),
        f"{launcher} passes `{flag}=N`{since}: {ends}, and every process stops",
        hint=hint,
        related=((found.declared or found.parser).labelled("the arguments that the script declares"),),
        fix=fix,
        severity=Severity.WARNING if plan.command.in_docs else severity,
        facts={"by": "deepspeed" if flag == "--local_rank" else "launch", "accepts": " ".join(found.accepts)},
    )


def _never_passed(plan: RunPlan, found: LocalRank) -> Iterator[Finding]:
    if found.use is None or found.declared is None or plan.world_size.get_or(1) < 2:
        return
    default = found.default.get_or(None)
    effect = "believes it is the only one" if default == -1 else f"works on GPU {default}"
    yield META.finding(
        _place(plan),
        f"{plan.command.launcher} passes no `--local_rank`: `args.local_rank` is {default} in all"
        f" {plan.world_size.get()} processes, and each {effect}",
        hint='Use `default=int(os.environ.get("LOCAL_RANK", -1))`; the script reads its local rank from nowhere else',
        related=(found.declared.labelled("the default"), found.use),
        severity=Severity.INFO if plan.command.in_docs else Severity.WARNING,
        facts={"by": "run", "default": default if isinstance(default, int) else None},
    )


def _place(plan: RunPlan) -> Location:
    return (plan.command.script or plan.command.words[0]).location
