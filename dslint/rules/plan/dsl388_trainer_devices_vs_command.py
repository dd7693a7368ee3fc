"""**What.** Lightning's `Trainer(devices=2)`, also through an option of the script (`--num_gpus 2`), is started with
another number of devices: `CUDA_VISIBLE_DEVICES=0` around plain `python`, or `torchrun --nproc_per_node=4`.

**Why it hurts.** With fewer visible devices the Trainer stops: `MisconfigurationException: You requested gpu: [0, 1]
But your machine only has: [0]`. Under torchrun Lightning starts nothing itself, takes its world from the launcher,
and stops where the product of `devices` and `num_nodes` is another one.

**Fix.** `devices="auto"`, or the same number in both places.

**When it stays quiet.** When one of the numbers is not known, for lists of devices, Trainers with `plugins`, and
under Slurm (DSL693, DSL446).

**Evidence.** `device_parser.py` and `TorchElasticEnvironment.validate_settings` of pytorch-lightning 2.0 to 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.meeting import devices
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL388",
    name="trainer-devices-vs-command",
    kind="plan",
    severity=Severity.WARNING,
    summary="A Trainer of Lightning asks for another number of devices than its command gives it",
    depends_on_run=True,
    no_experiment="it takes GPUs and Lightning; the tests stand in the sources of Lightning",
    references=("https://lightning.ai/docs/pytorch/stable/accelerators/gpu_basic.html",),
    needs=("devices",),
)

_TRAIN = """\
import argparse

import lightning as L

from mine import Data, Model

parser = argparse.ArgumentParser()
parser.add_argument("--num_gpus", type=int, default=1)
args = parser.parse_args()
trainer = L.Trainer(accelerator="gpu", devices=%s, strategy="ddp")
trainer.fit(Model(), Data())
"""
_OPTION, _NUMBER = {"train.py": _TRAIN % "args.num_gpus"}, {"train.py": _TRAIN % 4}

EXAMPLES = (
    bad("one visible device", {
        "run.sh": "export CUDA_VISIBLE_DEVICES=0\npython train.py --num_gpus 2\n", **_OPTION,
    }, "run.sh:2"),
    bad("two of four", {"run.sh": "CUDA_VISIBLE_DEVICES=2,3 python train.py\n", **_NUMBER}, "run.sh:1"),
    bad("torchrun starts others", {"run.sh": "torchrun --standalone --nproc_per_node=8 train.py\n", **_NUMBER},
        "run.sh:1"),
    bad("torchrun and the default of an option", {
        "run.sh": "torchrun --standalone --nproc_per_node=2 train.py\n", **_OPTION,
    }, "run.sh:1"),
    good("as many", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 python train.py --num_gpus 2\n", **_OPTION}),
    good("more than it needs", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 python train.py\n", **_NUMBER}),
    good("what is there", {
        "run.sh": "torchrun --standalone --nproc_per_node=8 train.py\n", "train.py": _TRAIN % '"auto"',
    }),
    good("torchrun with as many", {"run.sh": "torchrun --standalone --nproc_per_node=4 train.py\n", **_NUMBER}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Devices of the Trainer beside those of its command."""
    command, asked = plan.command, plan.devices
    if not asked.is_known or command.outer or command.conditions:
        return
    if command.launcher == "python":
        shown = devices(command)
        if shown.is_known and 0 < len(shown.get()) < asked.get():
            message = f"the Trainer asks for {asked.get()} devices, and sees {len(shown.get())} of them: it stops"
            yield _finding(plan, message, shown)
    elif command.launcher == "torchrun" and plan.nodes.get_or(0) == 1:
        each = plan.processes_per_node
        if each.is_known and each.get() != asked.get() and command.launcher_flag("--nproc_per_node") is not None:
            started = counted(each.get(), "process")
            yield _finding(plan, f"torchrun starts {started}, and the Trainer asks for {asked.get()}: it stops", each)


def _finding(plan: RunPlan, message: str, other: Fact[tuple[str, ...]] | Fact[int]) -> Finding:
    return META.finding(
        plan.command.location,
        message,
        hint='Write the same number in both places, or `devices="auto"`',
        related=(*plan.devices.origins[:1], *other.origins[:1]),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"devices": plan.devices.get()},
    )
