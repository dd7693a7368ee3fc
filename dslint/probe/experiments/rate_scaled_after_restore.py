"""A restart that multiplies the learning rate by the number of processes once more.

The first start multiplies the rate of the setting and saves its optimizer. As written, the restart restores the
optimizer and multiplies again; as fixed, it leaves the restored rate alone. One process multiplies by one (the control
is a factor of one).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import make_ddp, train_step

EXPERIMENT = Experiment(
    name="rate-scaled-after-restore",
    summary="each restart multiplies the restored learning rate by the number of processes",
    rules=("DSL730",),
    expect=Expect((Kind.WRONG,), r"the learning rate is 0\.4 and not 0\.2"),
    cases=(
        Case("two-ranks", {"by": "world"}),
        Case("by-one", {"by": "one"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The restart multiplies, too."""
    return _restart(rank, is_scaled=True)


def fixed(rank: RankApi) -> Json:
    """Only the first start multiplies."""
    return _restart(rank, is_scaled=False)


def _restart(rank: RankApi, is_scaled: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    model = make_ddp(rank, torch.nn.Linear(4, 1))
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    for group in first.param_groups:
        group["lr"] *= dist.get_world_size()
    train_step(rank, model, first, 0)
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    second.load_state_dict(first.state_dict())
    for group in second.param_groups if is_scaled else ():
        group["lr"] *= dist.get_world_size() if rank.params["by"] == "world" else 1
    train_step(rank, model, second, 1)
    rate: float = second.param_groups[0]["lr"]
    return round(rate, 6)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the rate is known
    """A rate that was multiplied twice."""
    return None if values[0] == 0.2 else f"the learning rate is {values[0]} and not 0.2"
