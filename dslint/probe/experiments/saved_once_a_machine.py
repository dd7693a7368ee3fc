"""Two processes, each of local rank 0 on a machine of its own, save to one path of a shared folder.

As written, both save what they have under one name, and one of the two is lost. As fixed, the process of rank 0 in the
job saves alone, and its checkpoint is what is read. With the number of the machine in the name (the control) both are
there.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="saved-once-a-machine",
    summary="each machine's local rank 0 writes the same checkpoint: the last one wins",
    flavour="torch",
    rules=("DSL788",),
    one_host=True,
    expect=Expect((Kind.WRONG,), r"the checkpoint of machine 0 holds what machine 1 has saved"),
    cases=(
        Case("one-name", {"own": False}),
        Case("name-of-the-machine", {"own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Save on local rank 0 of each machine."""
    return _saved(rank, is_ours=True)


def fixed(rank: RankApi) -> Json:
    """Save on rank 0 of the job."""
    return _saved(rank, is_ours=rank.index == 0)


def _saved(rank: RankApi, is_ours: bool) -> Json:
    import os

    import torch
    import torch.distributed as dist

    rank.init()
    machine = rank.index  # one process on each
    name = f"last_{machine}.pt" if rank.params["own"] else "last.pt"
    for turn in range(2):
        if is_ours and turn == machine:  # one after the other: what a race leaves is not always the same
            torch.save({"machine": machine}, os.path.join(rank.folder, name))
        dist.barrier()
    rank.mark("saved")
    first = "last_0.pt" if rank.params["own"] else "last.pt"
    return int(torch.load(os.path.join(rank.folder, first))["machine"])


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - machine 0 should have saved
    """Return whose checkpoint is found under the name of machine 0."""
    found = values[0] if values else 0
    return f"the checkpoint of machine 0 holds what machine {found} has saved" if found != 0 else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of one name."""
    return {} if case.name == "one-name" else None
