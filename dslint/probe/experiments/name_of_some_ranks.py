"""A variable that only rank 0 has given a value, and that every rank reads.

As written, each rank reads the name of the folder that rank 0 alone has chosen. As fixed, the line stands under the
test that has chosen it. The control gives the variable a value on every rank.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="name-of-some-ranks",
    summary="the ranks without it stop, and the others wait for them",
    rules=("DSL748",),
    one_host=True,
    expect=Expect((Kind.RAISE,), r"local variable 'folder'"),
    cases=(
        Case("on-rank-0", {"everywhere": False}),
        Case("on-every-rank", {"everywhere": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Every rank reads it."""
    return _train(rank, asked=False)


def fixed(rank: RankApi) -> Json:
    """The rank that has it reads it."""
    return _train(rank, asked=True)


def _train(rank: RankApi, asked: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    if dist.get_rank() == 0 or rank.params["everywhere"]:
        folder = rank.folder
    total = torch.ones(1, device=rank.device)
    if not asked or dist.get_rank() == 0 or rank.params["everywhere"]:
        rank.mark(f"in {bool(folder)}")
    dist.all_reduce(total)
    return float(total.item())
