"""**What.** Lightning's `Trainer(devices=2)`, also through an option of the script (`--num_gpus 2`), is started with
another number of devices: `CUDA_VISIBLE_DEVICES=0` around plain `python`, or `torchrun --nproc_per_node=4`. Or it has
`num_nodes=4`, also through a file of settings, and the command starts one machine. Or Slurm shows each task one GPU
(`--gpus-per-task=1`), and every task asks for those of the node.

**Why it hurts.** With fewer visible devices the Trainer stops: `MisconfigurationException: You requested gpu: [0, 1]
But your machine only has: [0]`. Under torchrun Lightning starts nothing itself, takes its world from the launcher,
and stops where the product of `devices` and `num_nodes` is another one. `num_nodes` is the number of machines: with 4,
`python train.py` starts the processes of one and waits for those of three others, until a time limit.

**Fix.** `devices="auto"`, or the same number in both places; `num_nodes: 1` for one machine.

**When it stays quiet.** When one of the numbers is not known, for lists of devices, Trainers with `plugins`, and
for other numbers under
Slurm (DSL693, DSL446). For machines, where the script, the command or the text around it names `NODE_RANK`,
`MASTER_ADDR`, Slurm, nodes or several machines, and in projects with batch jobs.

**Evidence.** `device_parser.py` and `TorchElasticEnvironment.validate_settings` of pytorch-lightning 2.0 to 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.context import Context
from dslint.model.launch.meeting import devices
from dslint.model.launch.slurmjob import one_gpu_of_task, step_tasks
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL388",
    name="trainer-devices-vs-command",
    kind="plan",
    severity=Severity.WARNING,
    summary="A Trainer of Lightning asks for other devices or machines than its command gives it",
    depends_on_run=True,
    no_experiment="it takes GPUs and Lightning; the tests stand in the sources of Lightning",
    references=("https://lightning.ai/docs/pytorch/stable/accelerators/gpu_basic.html",),
    needs=("devices", "machines"),
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

_NODES = _TRAIN.replace("devices=%s", "devices=4, num_nodes=%s")
_FILE = (
    "import argparse\n\nimport pytorch_lightning as pl\nfrom omegaconf import OmegaConf\n\n"
    "from mine import Data, Model\n\n"
    'parser = argparse.ArgumentParser()\nparser.add_argument("--config", default="conf/a.yaml")\n'
    "args = parser.parse_args()\ncfg = OmegaConf.load(args.config)\n"
    'trainer = pl.Trainer(accelerator="gpu", %s, strategy="ddp")\ntrainer.fit(Model(), Data())\n'
)
_BY_FILE = {"conf/a.yaml": "lr: 0.1\nnum_nodes: 4\n", "train.py": _FILE % "num_nodes=cfg.num_nodes"}
_SLURM = (
    "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --%s\n"
    "srun python train.py --config conf/a.yaml\n"
)
_IN_DOCS = "# Training\n\n    python train.py --config conf/a.yaml\n"

EXAMPLES = (
    bad("a number of machines in the settings", {"README.md": _IN_DOCS, **_BY_FILE}, "conf/a.yaml:2"),
    bad("a section of the settings, spread", {
        "conf/a.yaml": "trainer:\n  max_epochs: 3\n  num_nodes: 2\n", "train.py": _FILE % "**cfg.trainer",
        "run.sh": "python train.py\n",
    }, "conf/a.yaml:3"),
    bad("a key of the settings, by a name", {
        "conf/a.yaml": "trainer:\n  nodes: 2\n",
        "train.py": (_FILE % "num_nodes=machines").replace(
            "trainer = pl", "machines = cfg['trainer']['nodes']\ntrainer = pl"),
        "run.sh": "python train.py --config=conf/a.yaml\n",
    }, "conf/a.yaml:2"),
    bad("a number of machines in the script", {"run.sh": "python train.py\n", "train.py": _NODES % 2}, "train.py:10"),
    bad("a number of machines under torchrun", {
        "run.sh": "torchrun --standalone --nproc_per_node=4 train.py\n", "train.py": _NODES % 2,
    }, "train.py:10"),
    bad("a number of machines in the command, beside the devices of this one", {
        "run.sh": "export CUDA_VISIBLE_DEVICES=0,1\npython train.py --num_gpus 2 --num_nodes 2\n",
        "train.py": _TRAIN.replace("args = ", 'parser.add_argument("--num_nodes", type=int, default=1)\nargs = ')
        % "args.num_gpus, num_nodes=args.num_nodes",
    }, "run.sh:2 warning"),
    bad("Slurm shows each task one", {
        "job.sbatch": _SLURM % "gpus-per-task=1", "conf/a.yaml": "trainer:\n  devices: 4\n",
        "train.py": _FILE % "**cfg.trainer",
    }, "job.sbatch:4"),
    bad("Slurm shows each task one, and the script names the number", {
        "job.sbatch": _SLURM % "gpus-per-task=1", "train.py": _TRAIN % 4}, "job.sbatch:4"),
    bad("Slurm binds each task to one", {
        "job.sbatch": _SLURM.replace("srun", "srun --gpu-bind=single:1") % "gres=gpu:4", "train.py": _TRAIN % 4,
    }, "job.sbatch:5"),
    good("Slurm shows all of them", {
        "job.sbatch": _SLURM % "gres=gpu:4", "conf/a.yaml": "trainer:\n  devices: 4\n",
        "train.py": _FILE % "**cfg.trainer",
    }),
    good("one machine", {"README.md": _IN_DOCS, **_BY_FILE, "conf/a.yaml": "lr: 0.1\nnum_nodes: 1\n"}),
    good("a text that speaks of the others", {
        "README.md": _IN_DOCS + "\nRun it on each node, with its own `NODE_RANK`.\n", **_BY_FILE,
    }),
    good("the rank of the node", {"run.sh": "NODE_RANK=$1 python train.py\n", "train.py": _NODES % 2}),
    good("another number from the command", {"run.sh": "python train.py num_nodes=1\n", **_BY_FILE}, select="DSL388"),
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
    yield from _machines(plan)
    yield from _of_task(plan)
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


def _machines(plan: RunPlan) -> Iterator[Finding]:
    """More machines than the one that the command starts."""
    command, machines = plan.command, plan.machines
    if machines.get_or(1) < 2 or (command.launcher == "torchrun" and plan.nodes.get_or(0) != 1):
        return
    place = machines.origins[0]
    shown = devices(command)
    # Who names the devices of the machine starts it here.
    is_one = shown.is_known and bool(shown.get()) and len(shown.get()) == plan.devices.get_or(0)
    is_asked = place.path == command.location.path and not is_one
    yield META.finding(
        place,
        f"the Trainer waits for {machines.get()} machines, and the command starts the processes of one: it never begins"
        if command.launcher == "python"
        else f"torchrun starts one machine, and the Trainer asks for {machines.get()}: it stops",
        hint="`num_nodes` is the number of machines, not of GPUs: write 1, or start each machine with its `NODE_RANK`",
        related=(command.location.labelled("the command that starts this run"),),
        severity=Severity.INFO if is_asked else None,
        facts={"machines": machines.get()},
    )


def _of_task(plan: RunPlan) -> Iterator[Finding]:
    """Several devices for each task of Slurm, which sees one."""
    place = one_gpu_of_task(plan.command)
    if place is None or plan.devices.get_or(1) < 2 or "CUDA_VISIBLE_DEVICES" in plan.command.env:
        return
    if step_tasks(plan.command).per_node.get_or(1) < 2 or plan.command.conditions:
        return
    yield META.finding(
        place,
        f"Slurm shows each task one GPU, and the Trainer asks for {plan.devices.get()}: it stops",
        hint="Give the GPUs to the node: `--gpus-per-node`, or `--gres=gpu:N`",
        related=(*plan.devices.origins[:1], plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"devices": plan.devices.get()},
    )


def _finding(plan: RunPlan, message: str, other: Fact[tuple[str, ...]] | Fact[int]) -> Finding:
    return META.finding(
        plan.command.location,
        message,
        hint='Write the same number in both places, or `devices="auto"`',
        related=(*plan.devices.origins[:1], *other.origins[:1]),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"devices": plan.devices.get()},
    )
