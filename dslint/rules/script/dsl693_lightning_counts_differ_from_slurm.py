"""Lightning's Trainer is told other numbers of devices or nodes than the Slurm job that starts it.

**What.** A job with `#SBATCH --nodes=2` and `--ntasks-per-node=8` runs `srun python train.py`, and the script says
`Trainer(devices=4, num_nodes=1)`, or leaves `num_nodes` at its default of 1.

**Why it hurts.** Under `srun` Lightning takes each task for one process of one device. Where the numbers differ it
stops: `ValueError: You set devices=4 in Lightning, but the number of tasks per node configured in SLURM
--ntasks-per-node=8 does not match`. Releases before that test wait for ranks that nobody starts, or train on each node
alone.

**Fix.** `devices` as many as `--ntasks-per-node`, `num_nodes` as many as `--nodes`; best from the variables of Slurm:
`num_nodes=int(os.environ["SLURM_NNODES"])`.

With one task in all (`--ntasks=1`) Lightning does not stop: it takes the one task for its only process, and trains on
one GPU whatever `devices` says.

**When it stays quiet.** A job that states neither `--ntasks-per-node` nor one task; numbers that are not known, such as
`devices="auto"`; a Trainer with `plugins`, which may hold another environment; commands without `srun` (DSL446).

**Evidence.** `SLURMEnvironment.validate_settings` of pytorch-lightning 2.1 to 2.6; for one task its `world_size`, run
for DSL446. https://github.com/Lightning-AI/pytorch-lightning/issues/17252
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import trainers

META = RuleMeta(
    code="DSL693",
    name="lightning-counts-differ-from-slurm",
    kind="script",
    severity=Severity.WARNING,
    summary="devices or nodes of Lightning's Trainer are not those of the Slurm job that starts it",
    markers=(r"lightning", r"Trainer"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/10098",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html",
    ),
    depends_on_run=True,
    no_experiment="it takes Slurm and Lightning; the test is in the source of Lightning",
)


_ONE_TASK = re.compile(r"(?:--ntasks[= ]|-n[= ]?)1$")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each Trainer whose numbers are certain and differ from those of the job."""
    each, nodes = run.context.processes_per_node, run.context.nodes
    if run.context.launcher.get_or("") != "srun":
        return
    if not _is_stated(each):
        yield from _alone(run)
        return
    for event in trainers(run):
        if event.open or event.may or "plugins" in event.arguments:
            continue
        yield from _compared(run, event, "devices", None, each, "task", " per node")
        yield from _compared(run, event, "num_nodes", 1, nodes, "node")


def _alone(run: RunQuery) -> Iterator[Finding]:
    """Yield the Trainers for several devices of a job that states one task in all: `SLURM_NTASKS` is their world."""
    world = run.context.world_size
    if world.get_or(0) != 1 or not any(_ONE_TASK.search(place.label) for place in world.origins):
        return
    for event in trainers(run):
        value = event.arguments.get("devices")
        constants = value.constants if value is not None else None
        count = constants[0] if constants is not None and len(constants) == 1 else None
        if event.open or event.may or "plugins" in event.arguments or type(count) is not int or count < 2:
            continue
        yield run.finding(
            META,
            event.module,
            event.nodes.get("devices", event.node),
            f"`devices={count}` of this Trainer, but its Slurm job has one task: Lightning trains on one GPU, alone",
            hint=f"Ask for `--ntasks-per-node={count}` in the job, and start it with `srun`",
            related=world.origins,
            facts={"devices": count},
        )


def _is_stated(each: Fact[int]) -> bool:
    """Return whether the job itself says how many tasks a node has: Lightning asks for nothing else."""
    return each.is_known and any("tasks-per-node" in place.label for place in each.origins)


def _compared(
    run: RunQuery, event: Event, name: str, default: int | None, stated: Fact[int], noun: str, where: str = ""
) -> Iterator[Finding]:
    value = event.arguments.get(name)
    constants = value.constants if value is not None else (default,)
    count = constants[0] if constants is not None and len(constants) == 1 else None
    if type(count) is not int or count < 1 or stated.get_or(count) == count:
        return
    said = f"`{name}={count}`" if value is not None else f"the default `{name}={count}`"
    yield run.finding(
        META,
        event.module,
        event.nodes.get(name, event.node),
        f"{said} of this Trainer, but its Slurm job has {counted(stated.get(), noun)}{where}: Lightning stops",
        hint=f"Write `{name}={stated.get()}`, or ask for {count} in the job",
        related=stated.origins,
        facts={name: count},
    )


_JOB = "#!/bin/bash\n#SBATCH --nodes=%s\n#SBATCH --ntasks-per-node=%s\nsrun python train.py\n"
_TRAIN = """\
%simport %s as pl

from mine import Data, Model

trainer = pl.Trainer(accelerator="gpu", strategy="ddp"%s)
trainer.fit(Model(), Data())
"""


def _project(job: str, arguments: str, library: str = "lightning.pytorch", before: str = "") -> dict[str, str]:
    return {"job.sh": job, "train.py": _TRAIN % (before, library, arguments)}


_OPTIONS = """\
import argparse

import pytorch_lightning as pl

from mine import Data, Model

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int, default=1)
args = parser.parse_args()
trainer = pl.Trainer(accelerator="gpu", devices=args.gpus)
trainer.fit(Model(), Data())
"""

_ONE = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH %s\n#SBATCH --gres=gpu:4\nsrun python train.py%s\n"

EXAMPLES = (
    bad("one task in all", _project(_ONE % ("--ntasks=1", ""), ", devices=4"), "train.py:5 warning"),
    bad("a short option", _project(_ONE % ("-n 1", ""), ", devices=2, strategy='ddp'"), "train.py:5 warning"),
    bad(
        "an option of the step",
        _project(_ONE.replace("srun", "srun --ntasks=1") % ("--time=1:00:00", ""), ", devices=4"),
        "train.py:5 warning",
    ),
    bad(
        "one task, and an option of the command",
        {"job.sh": _ONE % ("--ntasks=1", " --gpus 4"), "train.py": _OPTIONS},
        "train.py:10 warning",
    ),
    good("one task for one device", {"job.sh": _ONE % ("--ntasks=1", ""), "train.py": _OPTIONS}),
    good("as many tasks", _project(_ONE % ("--ntasks=4", ""), ", devices=4")),
    bad("devices", _project(_JOB % (1, 8), ", devices=4"), "train.py:5 warning"),
    bad("nodes by default", _project(_JOB % (2, 8), ", devices=8", "pytorch_lightning"), "train.py:5 warning"),
    bad("nodes", _project(_JOB % (1, 4), ", devices=4, num_nodes=2"), "train.py:5 warning"),
    bad(
        "an option of the command",
        {"job.sh": (_JOB % (1, 4)).strip() + " --gpus 8\n", "train.py": _OPTIONS},
        "train.py:10 warning",
    ),
    good("an option that agrees", {"job.sh": (_JOB % (1, 4)).strip() + " --gpus 4\n", "train.py": _OPTIONS}),
    good("the same", _project(_JOB % (2, 8), ", devices=8, num_nodes=2")),
    good("whatever is there", _project(_JOB % (1, 8), ', devices="auto"')),
    good(
        "the variable of Slurm",
        _project(_JOB % (2, 8), ', devices=8, num_nodes=int(os.environ["SLURM_NNODES"])', before="import os\n\n"),
    ),
    good(
        "another environment",
        _project(
            _JOB % (1, 8),
            ", devices=4, plugins=[LightningEnvironment()]",
            before="from lightning.pytorch.plugins.environments import LightningEnvironment\n",
        ),
    ),
)
