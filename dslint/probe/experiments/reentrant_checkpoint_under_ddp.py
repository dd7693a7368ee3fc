"""Reentrant checkpointing in a model of `DistributedDataParallel`.

As written, a layer is checkpointed with `use_reentrant=True`; as fixed, with `use_reentrant=False`. DDP that looks for
unused parameters, and DDP whose layer runs twice in one forward pass, gets gradients twice and raises. Without the
search a layer that runs once trains (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

EXPERIMENT = Experiment(
    name="reentrant-checkpoint-under-ddp",
    summary="the backward pass raises, since gradients come twice",
    rules=("DSL296",),
    expect=Expect((Kind.RAISE,), r"Expected to mark a variable ready only once"),
    cases=(
        Case("search", {"search": True, "passes": 1}),
        Case("twice", {"search": False, "passes": 2}),
        Case("once", {"search": False, "passes": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Reentrant."""
    return _train(rank, reentrant=True)


def fixed(rank: RankApi) -> Json:
    """Not reentrant."""
    return _train(rank, reentrant=False)


def _train(rank: RankApi, reentrant: bool) -> Json:
    import torch
    from torch.utils.checkpoint import checkpoint

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, rows: Any) -> Any:
            rows = self.first(rows)
            for _ in range(rank.params["passes"]):
                rows = checkpoint(self.layer, rows, use_reentrant=reentrant)
            return rows

    rank.init()
    model = make_ddp(rank, Model(), find_unused_parameters=rank.params["search"])
    optimizer = make_optimizer(model)
    for number in range(2):
        model(inputs(rank, number)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {number}")
    return "trained"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What makes DDP meet the layers twice."""
    return {} if subject.finding.fact("why") == case.name else None
