"""The process group needs a number that the command does not give: the option is `None`, or a text.

**What.** A script hands an option to `init_process_group(rank=args.rank, world_size=args.world_size)` or `spawn(...,
nprocs=args.gpus)` as it is. The command leaves the option out and its default is `None`, or the option has no
`type=int` and reaches the call as a text.

**Why it hurts.** Every process stops at this call: `` `world_size` must be an integer. None``. Nothing trains, whatever
the launcher has set in the environment.

**Fix.** Pass the option, or give it a default: the variable `WORLD_SIZE` or the number of GPUs. Declare it with
`type=int`.

**When it stays quiet.** When words of the command are not known, when the script assigns the option anywhere or fills
its arguments from elsewhere, when a test decides whether the call is made, and for a command of a document that passes
fewer than three options: that only shows how the script is started (information).

**Evidence.** torch 2.13, run: `RuntimeError: world_size must be an integer. None` with `None` and with a text;
https://github.com/bowang-lab/MedSAM/issues/156
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL422",
    name="group-gets-no-number",
    kind="plan",
    severity=Severity.WARNING,
    summary="An option that the process group needs as a number is left out, or is a text",
    references=("https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",),
    depends_on_run=True,
    no_experiment="the call refuses the value before any rank meets another",
    needs=("no_number",),
)

_SCRIPT = """\
import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(gpu, args):
    dist.init_process_group("nccl", init_method=args.url, rank=gpu, world_size=args.world_size)
    torch.cuda.set_device(gpu)
    print(args.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="tcp://127.0.0.1:29500")
    parser.add_argument("--world-size"%s)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    mp.spawn(worker, nprocs=torch.cuda.device_count(), args=(args,))


if __name__ == "__main__":
    main()
"""
_RANKS = """\
import argparse
import os

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--rank"%s)
parser.add_argument("--size", type=int, default=8)
args = parser.parse_args()
%sdist.init_process_group("gloo", rank=args.rank, world_size=args.size)
"""
_RUN = "python train.py --url tcp://127.0.0.1:29511 --lr 0.2\n"

EXAMPLES = (
    bad("nobody says how many ranks", {"run.sh": _RUN, "train.py": _SCRIPT % ", type=int"}, "run.sh:1 warning"),
    bad("a text", {
        "run.sh": _RUN.strip() + " --world-size 4\n", "train.py": _SCRIPT % "",
    }, "run.sh:1 warning"),
    bad("the rank under torchrun", {
        "run.sh": "torchrun --nproc_per_node 8 train.py\n", "train.py": _RANKS % (", type=int", ""),
    }, "run.sh:1 warning"),
    bad("the processes to start", {
        "run.sh": _RUN,
        "train.py": (_SCRIPT % ", type=int, default=4").replace("torch.cuda.device_count()", "args.gpus").replace(
            'parser.add_argument("--lr"', 'parser.add_argument("--gpus", type=int)\n    parser.add_argument("--lr"'),
    }, "run.sh:1 warning"),
    bad("a documented command", {
        "README.md": f"```bash\n{_RUN.strip()} --lr 0.1\n```\n".replace("--lr 0.2", "--lr 0.2 --epochs 4"),
        "train.py": (_SCRIPT % ", type=int").replace(
            'parser.add_argument("--lr"', 'parser.add_argument("--epochs", type=int)\n    parser.add_argument("--lr"'),
    }, "README.md:2 warning"),
    good("it is passed", {"run.sh": _RUN.strip() + " --world-size 4\n", "train.py": _SCRIPT % ", type=int"}),
    good("a default", {"run.sh": _RUN, "train.py": _SCRIPT % ", type=int, default=4"}),
    good("the script sets it", {
        "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        "train.py": _RANKS % (", type=int", 'args.rank = int(os.environ["RANK"])\n'),
    }),
    good("words that are not known", {"run.sh": _RUN.strip() + ' "$@"\n', "train.py": _SCRIPT % ", type=int"}),
    good("a test decides", {
        "run.sh": "python train.py\n",
        "train.py": _RANKS % (", type=int", "if args.size > 1:\n    "),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Options that reach a call which refuses them."""
    found, command = plan.no_number, plan.command
    if found is None or command.script is None:
        return
    number = found.number
    value = "`None`" if found.value is None else f"the text `{found.value}`"
    what = f"`{number.parameter}` of `{number.call}`"
    name = found.option.name
    yield META.finding(
        command.script.location,
        f"this command makes {what} {value}: every process stops there, for it must be a number",
        hint=f"Pass `{name}`, or give it a default" if found.value is None else f"Declare `{name}` with `type=int`",
        related=(number.location.labelled("the call"), found.option.location.labelled(f"`{name}`")),
        severity=Severity.INFO if command.in_docs and len(command.script_flags) < 3 else None,
        facts={"parameter": number.parameter},
    )
