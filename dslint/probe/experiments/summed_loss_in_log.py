"""A loss that is reduced over the ranks for the log.

As written, `all_reduce` adds, and the sum is told as the loss. As fixed, the sum is divided by the number of ranks.
Where the script divides already there is nothing to mend (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="summed-loss-in-log",
    summary="the sum of the losses of all ranks is told as the loss",
    flavour="torch",
    rules=("DSL787",),
    expect=Expect((Kind.WRONG,), r"the log says 4, and the mean is 2"),
    cases=(
        Case("summed", {"divided": False}),
        Case("divided", {"divided": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Tell the sum."""
    return _told(rank, is_mean=bool(rank.params["divided"]))


def fixed(rank: RankApi) -> Json:
    """Tell the mean."""
    return _told(rank, is_mean=True)


def _told(rank: RankApi, is_mean: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    loss = torch.tensor([1.0 if rank.index == 0 else 3.0], device=rank.device)
    told = loss.clone()
    dist.all_reduce(told)
    if is_mean:
        told /= dist.get_world_size()
    rank.mark("reduced")
    return {"told": round(told.item()), "mean": 2}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the mean is known
    """Return the number that is told where it is not the mean."""
    first = values[0] if values and isinstance(values[0], dict) else {}
    told, mean = first.get("told"), first.get("mean")
    return f"the log says {told}, and the mean is {mean}" if told != mean else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - nothing to take over
    """The case of a sum."""
    return {} if case.name == "summed" else None
