"""A script reads its file of arguments only when that is the sole argument, and the launcher adds one.

**What.** The script tests `len(sys.argv) == 2 and sys.argv[1].endswith(".yaml")` before it reads a file of arguments
(`parse_yaml_file`, `parse_json_file`), and `deepspeed train.py args.yaml` or `python -m torch.distributed.launch
train.py args.yaml` starts it: both put `--local_rank=N` before the name of the file.

**Why it hurts.** There are three words, so that the test is false. The parser reads the command line instead, where
nothing is: `error: the following arguments are required: --model_name_or_path`, or `Some specified arguments are
not used by the HfArgumentParser: ['args.yaml']`, in every process.

**Fix.** `deepspeed --no_local_rank`, `torchrun`, or `accelerate launch`, which add nothing; or a test of the last word,
`sys.argv[-1].endswith(".yaml")`.

**When it stays quiet.** With `--no_local_rank` or `--use_env`; other tests; a script that changes `sys.argv`; further
words after the file; a parser that lets unknown arguments pass.

**Evidence.** `deepspeed/launcher/launch.py` 0.19.8 and `torch/distributed/launcher/api.py` of torch 2.13, run with the
idiom of the examples of transformers: `sys.argv` has three words. https://github.com/hiyouga/LlamaFactory/issues/6075
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL435",
    name="file-of-arguments-not-alone",
    kind="plan",
    severity=Severity.WARNING,
    summary="A file of arguments that the script reads only when it is alone, and the launcher adds the local rank",
    references=("https://github.com/hiyouga/LlamaFactory/issues/6075",),
    depends_on_run=True,
    no_experiment="the words of one process decide, before any rank talks to another",
    needs=("not_alone",),
)

_SCRIPT = """\
import os
import sys
from dataclasses import dataclass

from transformers import HfArgumentParser, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    if %s:
        model_args, training_args = parser.parse_yaml_file(os.path.abspath(sys.argv[1]))
    else:
        model_args, training_args = parser.parse_args_into_dataclasses()
    print(model_args, training_args)


if __name__ == "__main__":
    main()
"""
_TEST = 'len(sys.argv) == 2 and sys.argv[1].endswith((".yaml", ".yml"))'
_YAML = "model_name_or_path: gpt2\noutput_dir: out\n"
_PROJECT = {"train.py": _SCRIPT % _TEST, "args.yaml": _YAML}
_RUN = "deepspeed --num_gpus 8 train.py args.yaml\n"
_LAUNCH = "python -m torch.distributed.launch --nproc_per_node 8%s train.py args.yaml\n"
_OTHER = _SCRIPT.replace("if %s:", "if len(sys.argv[1:]) == 1:")
_READS = """\
import sys

from arguments import get_args

print(get_args())
"""
_RETURNS = (
    _SCRIPT[: _SCRIPT.index("def main")]
    + "def get_args():\n    parser = HfArgumentParser((ModelArguments, TrainingArguments))\n"
    + f"    if {_TEST}:\n        return parser.parse_yaml_file(sys.argv[1])\n"
    + "    return parser.parse_args_into_dataclasses()\n"
)

EXAMPLES = (
    bad("the deepspeed launcher", {**_PROJECT, "run.sh": _RUN}, "run.sh:1"),
    bad("torch.distributed.launch", {**_PROJECT, "run.sh": _LAUNCH % ""}, "run.sh:1"),
    bad("a count of the words after the script", {"args.yaml": _YAML, "train.py": _OTHER, "run.sh": _RUN}, "run.sh:1"),
    bad("a module for the arguments", {
        "args.yaml": _YAML, "train.py": _READS, "arguments.py": _RETURNS, "run.sh": _RUN,
    }, "run.sh:1"),
    good("told not to", {
        **_PROJECT, "run.sh": _RUN.replace("train.py", "--no_local_rank train.py") + _LAUNCH % " --use_env",
    }),
    good("launchers that add nothing", {
        **_PROJECT, "run.sh": "torchrun --nproc_per_node 8 train.py args.yaml\naccelerate launch --multi_gpu"
        " --num_processes 8 train.py args.yaml\npython train.py args.yaml\n",
    }),
    good("the last word", {
        "args.yaml": _YAML, "run.sh": _RUN,
        "train.py": (_SCRIPT % 'sys.argv[-1].endswith(".yaml")').replace("argv[1]", "argv[-1]"),
    }),
    good("a script that takes the rank away", {
        "args.yaml": _YAML, "run.sh": _RUN,
        "train.py": (_SCRIPT % _TEST).replace(
            "    parser =", '    sys.argv = [w for w in sys.argv if not w.startswith("--local")]\n    parser =',
        ),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Scripts that count their words, under a launcher that adds one."""
    if plan.not_alone is None or not plan.command.script_args:
        return
    word = plan.command.script_args[0]
    name = "`deepspeed`" if plan.command.launcher == "deepspeed" else "`torch.distributed.launch`"
    how = "`--no_local_rank`" if plan.command.launcher == "deepspeed" else "`torchrun`"
    yield META.finding(
        plan.command.script.location if plan.command.script is not None else word.location,
        f"{name} puts `--local_rank` before `{word.text}`, which the script reads only as its sole argument: it stops",
        hint=f"Start it with {how}, or let the script test `sys.argv[-1]`",
        related=(plan.not_alone.labelled("false with the word of the launcher"),),
        severity=Severity.INFO if plan.command.in_docs else None,
    )
