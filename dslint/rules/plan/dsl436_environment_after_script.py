"""Variables of the environment are written after the script, where they are arguments.

**What.** `python fit.py config.yaml MASTER_ADDR=node0 NODE_RANK=1`, or `torchrun train.py NCCL_DEBUG=INFO`: names that
torch, NCCL, CUDA or Lightning read in the environment, after the name of the script.

**Why it hurts.** `NAME=value` sets a variable at the begin of a command only. After the script it is a word for the
script: a parser refuses it, and one that takes `key=value` (OmegaConf, Hydra, yacs) keeps it as a setting that nobody
reads. The variable has its default then: every node is node 0 at 127.0.0.1, and they wait for each other
until the rendezvous times out; all processes see all GPUs.

**Fix.** `MASTER_ADDR=node0 NODE_RANK=1 python fit.py config.yaml`, or `export` before the command.

**When it stays quiet.** When the script, or a config that it gets, has the name, or the script writes words into
`os.environ`; when the variable is set for the command, too; for the values of an option (`--env NCCL_DEBUG=INFO`), and
for scripts that are not known.

**Evidence.** bash's manual ("Simple Commands"): assignments come before the first word. They arrive in `sys.argv`.
https://github.com/project-lighter/lighter/pull/173
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL436",
    name="environment-after-script",
    kind="plan",
    severity=Severity.WARNING,
    summary="`MASTER_ADDR=node0` and its kin after the script: they are arguments, and no variables",
    references=(
        "https://www.gnu.org/software/bash/manual/html_node/Simple-Commands.html",
        "https://github.com/project-lighter/lighter/pull/173",
    ),
    depends_on_run=True,
    no_experiment="the words of a command decide, before any process starts; the rest is a missing variable",
    needs=("as_words",),
)

_SCRIPT = "import sys\n\nfrom omegaconf import OmegaConf\n\ncfg = OmegaConf.from_dotlist(sys.argv[2:])\nprint(cfg)\n"
_RUN = "python fit.py config.yaml trainer.num_nodes=2 MASTER_ADDR=$NODE0 MASTER_PORT=12345 NODE_RANK=1\n"
_PARSER = (
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
    "parser.add_argument('overrides', nargs='*')\nprint(parser.parse_args())\n"
)

EXAMPLES = (
    bad("settings of OmegaConf", {"run.sh": _RUN, "fit.py": _SCRIPT}, "run.sh:1"),
    bad("over ssh", {"run.sh": f'ssh node1 "cd /work && {_RUN.strip()}" &\n', "fit.py": _SCRIPT}, "run.sh:1"),
    bad("devices", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --lr 0.1 CUDA_VISIBLE_DEVICES=2,3\n", "train.py": _PARSER,
    }, "run.sh:1"),
    bad("in quotes", {
        "run.sh": 'accelerate launch --num_processes 1 train.py exp.name=a "NCCL_SOCKET_IFNAME=eth0"\n',
        "train.py": _PARSER,
    }, "run.sh:1"),
    bad("a script that reads it in the environment", {
        "run.sh": "python train.py NODE_RANK=1\n",
        "train.py": "import os\n\nprint(os.environ.get('NODE_RANK', 0))\n",
    }, "run.sh:1"),
    good("in front", {"run.sh": "MASTER_ADDR=$NODE0 NODE_RANK=1 python fit.py config.yaml a.b=2\n", "fit.py": _SCRIPT}),
    good("a setting of the config", {
        "run.sh": "python fit.py config.yaml MASTER_PORT=12345\n", "fit.py": _SCRIPT,
        "config.yaml": "MASTER_PORT: 29500\n",
    }),
    good("a setting that the script reads", {
        "run.sh": "python fit.py config.yaml WORLD_SIZE=2\n", "fit.py": _SCRIPT + "print(cfg.WORLD_SIZE)\n",
    }),
    good("values of an option", {
        "run.sh": "python train.py --env NCCL_DEBUG=INFO MASTER_PORT=1234\n",
        "train.py": "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--env', nargs='+')\n"
        "print(parser.parse_args())\n",
    }),
    good("a script that sets variables itself", {
        "run.sh": "python train.py NCCL_DEBUG=INFO\n",
        "train.py": "import os\nimport sys\n\nfor word in sys.argv[1:]:\n    name, _, value = word.partition('=')\n"
        "    os.environ[name] = value\n",
    }),
    good("other settings", {"run.sh": "python fit.py config.yaml LR=1 rank=3\n", "fit.py": _SCRIPT}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Words that are meant for the environment, once for a command."""
    if not plan.as_words:
        return
    (name, word), *others = plan.as_words
    names = ", ".join(f"`{other}`" for other, _ in plan.as_words[:3])
    yield META.finding(
        word.location,
        f"{names} after the script: {'an argument' if not others else 'arguments'} that nobody reads, and no"
        f" {'variable' if not others else 'variables'} of the environment",
        hint=f"Write `{name}=...` in front of the command, or export it",
        related=tuple(other.location.labelled(f"so is `{label}`") for label, other in others[:3]),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"name": name},
    )
