"""A layer of a DDP model that only the ranks run whose batch, or random draw, says so.

As written, rank 1 skips the layer in one step; as fixed, it runs the layer on zeros and adds nothing. DDP waits for the
gradients of all parameters, so the rank that skipped raises in its next forward pass and the other one waits. A step in
which both ranks skip the layer is no control with the default (both raise): the control runs it on both.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="part-skipped-by-own-data",
    summary="a layer of a DDP model runs on some ranks only",
    rules=("DSL280",),
    expect=Expect((Kind.STALL, Kind.RAISE, Kind.SIGNAL), r"finished reduction|all_?reduce|Connection|backward"),
    cases=(
        Case("own-data", {"skips": [1]}),
        Case("on-all-ranks", {"skips": []}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The layer is skipped where there is nothing for it."""
    return _train(rank, everywhere=False)


def fixed(rank: RankApi) -> Json:
    """The layer runs on zeros there."""
    return _train(rank, everywhere=True)


def _train(rank: RankApi, everywhere: bool) -> Json:
    import torch

    from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step, weights

    class Partial(torch.nn.Module):
        """A layer that every batch needs, and one that some do."""

        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Linear(4, 1)
            self.extra = torch.nn.Linear(4, 1)
            self.steps = 0

        def forward(self, rows: Any) -> Any:
            self.steps += 1
            found = self.base(rows)
            if self.steps == 2 and rank.index in rank.params["skips"]:
                return found + 0.0 * self.extra(torch.zeros_like(rows)) if everywhere else found
            return found + self.extra(rows)

    torch.manual_seed(0)
    model = make_ddp(rank, Partial())
    optimizer = make_optimizer(model)
    for number in range(4):
        train_step(rank, model, optimizer, number)
    return {"weights": weights(model)}
