"""A report that only rank 0 has made, and that every rank uses.

As written, each rank calls a method of what is `None` on all ranks but one, as a script does after
`writer = SummaryWriter(...) if rank == 0 else None`. As fixed, only the rank that has made it uses it. The control
makes it on every rank.
"""

from __future__ import annotations

import io

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="made-on-some-ranks-used-on-all",
    summary="the ranks that have not made it stop, and the others wait for them",
    rules=("DSL615",),
    one_host=True,
    expect=Expect((Kind.RAISE,), r"'NoneType' object has no attribute '(?:write|seek)'"),
    cases=(
        Case("on-rank-0", {"everywhere": False}),
        Case("path", {"everywhere": False, "path": True}),
        Case("on-every-rank", {"everywhere": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_STEPS = 3


def written(rank: RankApi) -> Json:
    """Every rank uses it."""
    return _train(rank, asked=False)


def fixed(rank: RankApi) -> Json:
    """The rank that has made it uses it."""
    return _train(rank, asked=True)


def _train(rank: RankApi, asked: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    if rank.params.get("path"):
        return _load(rank, asked)
    report = io.StringIO() if dist.get_rank() == 0 or rank.params["everywhere"] else None
    total = torch.ones(1, device=rank.device)
    for step in range(_STEPS):
        dist.all_reduce(total)
        if not asked or report is not None:
            report.write(f"{step} {total.item()}")  # type: ignore[union-attr]
        rank.mark(f"step {step}")
    return float(total.item())


def _load(rank: RankApi, asked: bool) -> Json:
    """Load a file of which rank 0 alone knows the path."""
    import torch
    import torch.distributed as dist

    path = rank.folder + "/state.pt" if dist.get_rank() == 0 else None
    if path is not None:
        torch.save({"step": 1}, path)
    if not asked or path is not None:
        torch.load(path)
    dist.barrier()
    return 1.0
