"""A script sets a variable of the launcher, and gives it another number than its name says.

**What.** Code that translates the variables of mpirun or Slurm: `os.environ["NODE_RANK"] =
os.environ["OMPI_COMM_WORLD_RANK"]` (the rank in the whole job), `RANK` from a local rank, `LOCAL_RANK` or `GROUP_RANK`
from the rank of the job. Several processes run on a machine.

**Why it hurts.** Lightning computes the rank as `NODE_RANK * devices + LOCAL_RANK`: with the rank of the job for the
machine's number, the processes of two machines with four GPUs call themselves 0, 5, 10, 15, ... of 8. With a local
rank for `RANK` each rank is there twice. The group never forms, and all processes wait. With one process on each
machine, or one machine, some of these numbers are equal, and the same script works.

**Fix.** The number of the machine: `int(os.environ["OMPI_COMM_WORLD_RANK"]) // processes_per_node`, `SLURM_NODEID`.
`RANK` from `OMPI_COMM_WORLD_RANK` or `SLURM_PROCID`, `LOCAL_RANK` from `OMPI_COMM_WORLD_LOCAL_RANK` or `SLURM_LOCALID`.

**When it stays quiet.** Numbers that are computed of what nobody knows; one process on each machine, or nothing that
says that there are several; one machine; `NODE_RANK` where no Lightning runs, which alone reads it; processes that the
script starts itself; a meeting on this machine.

**Evidence.** `LightningEnvironment.node_rank` and `DDPStrategy.set_world_ranks` of lightning 2.x; torch 2.13 on two
gloo ranks that both call themselves 0 waits until its time is over (DSL271).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.environment import COLUMNS, SET
from dslint.python.events import Alt, Event
from dslint.python.values import Const, PerRank, Value
from dslint.python.varies import ASSUMED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.visible import HERE, variable_of
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import trainers

META = RuleMeta(
    code="DSL697",
    name="rank-variable-of-other-number",
    kind="script",
    severity=Severity.WARNING,
    summary="a script sets a variable of the launcher to another number than its name says: the group never forms",
    markers=(r"environ", r"\b(?:NODE_RANK|GROUP_RANK|LOCAL_RANK|RANK)\b", r"OMPI_|SLURM_|PMI|MV2_|MPI_|RANK"),
    references=(
        "https://github.com/MicrosoftDocs/azure-docs/pull/95788",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_intermediate_1.html",
    ),
    depends_on_run=True,
    no_experiment="the variables are those of mpirun and Slurm; DSL271 shows a group whose ranks are there twice",
)
_VARIABLES = {"NODE_RANK": "node-rank", "GROUP_RANK": "node-rank", "LOCAL_RANK": "local-rank", "RANK": "rank"}
_SAID = {
    "rank": "the rank in the whole job",
    "local-rank": "the rank on the machine",
    "node-rank": "a machine's number",
}
_EFFECTS = {
    "rank": "ranks are there twice, and the group never forms",
    "local-rank": "the second machine has no such GPU",
    "node-rank": "Lightning computes ranks that do not exist, and the group never forms",
}
# Who asks for its number on the machine has neighbours there.
_SEVERAL = re.compile(r"LOCAL_?RANK|LOCALID|local_rank|COMM_TYPE_SHARED")
_JOINING = ("starts-group", "wraps-model", "prepares", "makes-engine", "trainer-train", "makes-fabric")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each variable that certainly gets the number of something else."""
    if run.context.is_one_machine or run.context.is_one_process or run.has("spawns") or not run.has(*_JOINING):
        return
    found = [write for write in run.happenings("sets-environment") if write.event.api == SET]
    writes = [write.event for write in found]
    if any(variable_of(write.event) == "MASTER_ADDR" and _is_always_here(write) for write in found):
        return
    has_lightning = bool(trainers(run)) or run.has("makes-fabric")
    for event in writes:
        meant = _VARIABLES.get(variable_of(event), "")
        held = _held(run, event.arguments["value"], meant) if meant and not event.may else ""
        is_read = meant != "node-rank" or has_lightning
        if held and is_read and (run.machine.worlds.stated or event.module.search(_SEVERAL)):
            yield _finding(run, event, meant, held)


def _is_always_here(write: Happening) -> bool:
    """Return whether the processes meet on this machine, whatever a test asks for."""
    words = write.event.arguments["value"].constants or ()
    is_asked = any(isinstance(node, Alt) for node in write.around)
    return bool(words) and all(HERE.search(str(word)) for word in words) and not is_asked


def _held(run: RunQuery, value: Value, meant: str) -> str:
    """Return which number a value is on all ranks, where that is another than the one that is meant."""
    atoms = [atom for atom in value.atoms if not isinstance(atom, Const)]
    if value.varies & ASSUMED or len(atoms) != 1 or not isinstance(atoms[0], PerRank):
        return ""
    given = [str(number) for number in atoms[0].values]
    lanes = run.machine.worlds.lanes
    columns = {word: [str(lane[COLUMNS[word]]) for lane in lanes] for word in _SAID}
    if given == columns[meant]:
        return ""
    return next((word for word, numbers in columns.items() if numbers == given), "")


def _finding(run: RunQuery, event: Event, meant: str, held: str) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{variable_of(event)}` is {_SAID[held]} here, not {_SAID[meant]}: {_EFFECTS[meant]}",
        hint=_HINTS[meant],
        facts={"variable": variable_of(event), "held": held},
    )


_HINTS = {
    "rank": "Take the rank of the job: `OMPI_COMM_WORLD_RANK`, `SLURM_PROCID`",
    "local-rank": "Take the rank on the machine: `OMPI_COMM_WORLD_LOCAL_RANK`, `SLURM_LOCALID`",
    "node-rank": "Divide the rank by the processes of a machine, or take `SLURM_NODEID`",
}
_LIGHTNING = """\
import os

import pytorch_lightning as pl

from mine import Data, Model


def translate(per_node):
    address, _, _ = os.environ["AZ_BATCH_MASTER_NODE"].partition(":")
    os.environ["MASTER_ADDR"] = address
    os.environ["NODE_RANK"] = %s
    os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]


def main(per_node):
    translate(per_node)
    trainer = pl.Trainer(accelerator="gpu", devices=per_node, num_nodes=2, strategy="ddp")
    trainer.fit(Model(), Data())


main(int(os.environ["GPUS"]))
"""
_TORCH = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Place:
    def __init__(self):
        self.rank = int(os.environ[%s])
        self.local_rank = int(os.environ.get(%s, 0))

    def tell(self):
        os.environ.update({"MASTER_PORT": "29500"})
        os.environ["RANK"] = str(self.rank)
        os.environ["LOCAL_RANK"] = f"{self.local_rank}"


def main(net):
    place = Place()
    place.tell()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return DDP(net.cuda())


main(torch.load("net.pt"))
"""
_RANK, _LOCAL = '"SLURM_PROCID"', '"SLURM_LOCALID"'
_OMPI = 'os.environ["OMPI_COMM_WORLD_%s"]'
EXAMPLES = (
    bad("the rank of MPI as the number of the machine", {"train.py": _LIGHTNING % (_OMPI % "RANK")}, "train.py:11"),
    bad("what Open MPI calls a rank on the node", {"train.py": _LIGHTNING % (_OMPI % "NODE_RANK")}, "train.py:11"),
    bad("the number on the machine as the rank", {"train.py": _TORCH % (_LOCAL, _LOCAL)}, "train.py:15 warning"),
    bad("the rank as the number on the machine", {"train.py": _TORCH % (_RANK, _RANK)}, "train.py:16 warning"),
    good("each has its own", {"train.py": _TORCH % (_RANK, _LOCAL)}),
    good(
        "divided by the processes of a machine",
        {"train.py": _LIGHTNING % f"str(int({_OMPI % 'RANK'}) // per_node)"},
    ),
    good(
        "one process on each machine",
        {"train.py": (_LIGHTNING % (_OMPI % "RANK")).replace('_LOCAL_RANK"]', '_SIZE"]').replace("LOCAL_RANK", "ID")},
    ),
    good("all processes are on one machine", {
        "train.py": _TORCH % (_LOCAL, _LOCAL), "run.sh": "torchrun --nproc_per_node 8 train.py\n"}),
)  # fmt: skip
