"""**What.** `python -m torch.distributed.launch` starts the processes.

**Why it hurts.** It is deprecated since torch 1.9 and will go. Without `--use_env` it passes `--local-rank=N` to a
script that torchrun would leave alone, one spelling before torch 2.0 and another since; DSL413 says where that stops
the run.

**Fix.** `torchrun` (`python -m torch.distributed.run`) with the same options; the script reads the local rank from
`os.environ["LOCAL_RANK"]`.

**When it stays quiet.** Where the project pins torch below 1.9. It is information: torch 2.13 still has the module,
and where its argument breaks a script, DSL413 says so. The fix is safe
where the script takes its local rank from the environment anyway, and is not offered where only the argument tells it.

**Evidence.** torch 2.13, `torch/distributed/launch.py`: the FutureWarning and `--local-rank`; both observed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context, VersionFact
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.flagedits import replaced, without_flag
from dslint.model.plan.runplan import RunPlan
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL452",
    name="torch-distributed-launch",
    kind="plan",
    severity=Severity.INFO,
    summary="`torch.distributed.launch` is deprecated, and passes an argument that scripts trip over",
    fix="safe",
    versions=("torch>=1.9",),
    references=(
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://github.com/huggingface/pytorch-image-models/issues/1724",
    ),
    depends_on_run=True,
    needs=("is_legacy",),
)

_RUN = "python -m torch.distributed.launch --nproc_per_node=8 train.py --lr 1\n"
_ENV = _RUN.replace("--nproc", "--use_env --nproc")
_NEW = _RUN.replace("distributed.launch", "distributed.run")
_READS = """\
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--lr")
parser.add_argument("--local-rank", "--local_rank", default=int(os.environ.get("LOCAL_RANK", 0)))
args = parser.parse_args()
"""
_ONLY = """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr")
parser.add_argument("--local-rank", "--local_rank", type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
"""

EXAMPLES = (
    bad("the script reads the environment", {"run.sh": _RUN, "train.py": _READS}, "run.sh:1 info",
        {"run.sh": _NEW}),
    bad("the environment is requested", {"run.sh": _ENV, "train.py": _READS}, "run.sh:1 info", {"run.sh": _NEW}),
    bad("only the argument tells the rank", {"run.sh": _RUN, "train.py": _ONLY}, "run.sh:1 info"),
    bad("in documentation", {"README.md": f"```bash\n{_RUN}```\n", "train.py": _READS}, "README.md:2 info"),
    good("torchrun", {"run.sh": "torchrun --nproc_per_node=8 train.py --lr 1\n" + _NEW, "train.py": _READS}),
    good("an old torch", {"run.sh": _RUN, "train.py": _READS, "requirements.txt": "torch==1.8.1\n"}),
)  # fmt: skip

_OLD, _NEXT = "torch.distributed.launch", "torch.distributed.run"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The module behind `python -m`."""
    command = plan.command
    word = next((w for w in command.words if w.text == _OLD), None) if command.launcher == "torchrun" else None
    torch = context.libraries.get("torch") or VersionFact()
    if word is None:
        return
    if torch.is_known and covers(torch, ">=1.9", "torch") == "no":
        return
    passes = command.launcher_flag("--use_env") is None
    yield META.finding(
        word.location,
        "`torch.distributed.launch` is deprecated since torch 1.9"
        + (": it passes `--local-rank` to the script, which torchrun does not" if passes else " and will be removed"),
        hint="Use torchrun, and read `LOCAL_RANK` from the environment in the script",
        fix=_fix(plan, command),
    )


def _fix(plan: RunPlan, command: LaunchCommand) -> Fix | None:
    """The module that torchrun is, without the option that it knows no more."""
    word = next(w for w in command.words if w.text == _OLD)
    environment = command.launcher_flag("--use_env")
    rank = plan.local_rank
    if environment is None and rank is not None and rank.use is not None:
        return None
    safety = Safety.SAFE if environment is not None or (rank is not None and rank.accepts) else Safety.UNSAFE
    first = replaced(command, word, _NEXT, f"Use `{_NEXT}`", safety)
    second = without_flag(command, environment) if environment is not None else None
    if first is None or (environment is not None and second is None):
        return None
    edits = (*first.edits, *(second.edits if second is not None else ()))
    return Fix(first.title, edits, safety)
