"""More processes than `CUDA_VISIBLE_DEVICES` shows them GPUs.

As written torchrun starts two processes that see one device, and each takes the device of its local rank; as fixed it
starts one. Needs a GPU: without CUDA nobody looks at the variable.
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="more-processes-than-devices",
    summary="two processes see one device, and the second takes the one behind it",
    rules=("DSL321",),
    ranks=1,
    needs=Needs(gpus=1, why="devices are numbered by CUDA"),
    expect=Expect((Kind.RAISE,), r"invalid device ordinal"),
    cases=(
        Case("two-on-one", {"processes": 2}),
        Case("one-on-one", {"processes": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_TAKE = """
import torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.ones(1, device="cuda")
note(device=torch.cuda.current_device())
"""


def written(rank: RankApi) -> Json:
    """As many processes as the case says."""
    return _run(rank, rank.params["processes"])


def fixed(rank: RankApi) -> Json:
    """One process for the one device."""
    return _run(rank, 1)


def _run(rank: RankApi, processes: int) -> Json:
    from dslint.probe.parts.launcher import torchrun

    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    notes = torchrun(rank, ["--nproc_per_node", str(processes), "train.py"], _TAKE)
    return [note["device"] for note in notes]
