"""A distributed script that plain `python` starts.

Nobody sets ``RANK`` and its like: ``init_process_group`` refuses. As fixed, torchrun starts the script. Libraries that
look at these variables by themselves (accelerate, the Trainer) train alone without a word instead: starting `python`
twice makes two jobs. DeepSpeed, which asks mpi4py next, is not shown.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="process-without-launcher",
    summary="python starts a script that needs a launcher",
    flavour="transformers",
    ranks=1,
    expect=Expect((Kind.RAISE,), r"ValueError: .*environment variable RANK expected, but not set"),
    cases=(
        Case("torch", {"with": "torch"}, rules=("DSL444",)),
        Case("accelerate", {"with": "accelerate"}, Expect((Kind.WRONG,), r"each in a world of 1")),
    ),
)
_SCRIPTS = {
    "torch": """
import torch.distributed as dist
dist.init_process_group("gloo")
note(world=dist.get_world_size())
""",
    "accelerate": """
from accelerate import PartialState
note(world=PartialState(cpu=True).num_processes)
""",
}


def written(rank: RankApi) -> Json:
    """``python train.py``, once for each process that is wanted."""
    from dslint.probe.parts.launcher import python

    return [note["world"] for note in python(rank, 2, _SCRIPTS[rank.params["with"]])]


def fixed(rank: RankApi) -> Json:
    """``torchrun --nproc_per_node 2 train.py``."""
    from dslint.probe.parts.launcher import torchrun

    notes = torchrun(rank, ["--nproc_per_node", "2", "train.py"], _SCRIPTS[rank.params["with"]])
    return [note["world"] for note in notes]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Processes that do not know of each other."""
    worlds = values[0]
    return f"{len(worlds)} processes, each in a world of 1" if worlds != reference[0] and set(worlds) == {1} else None
