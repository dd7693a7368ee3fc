"""`ReduceLROnPlateau.step(metric)` with the validation loss of each rank's own share.

As written, each rank steps the schedule with the loss of its share; as fixed, with the mean over all ranks. On the
share of rank 1 the loss rises while it falls on that of rank 0: rank 1 lowers its learning rate, rank 0 does not, and
the same gradients move the replicas by different amounts. Shares with the same loss give the same rate (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import diverged

EXPERIMENT = Experiment(
    name="plateau-follows-own-metric",
    summary="learning rates differ between the ranks, and the replicas part",
    rules=("DSL273",),
    expect=Expect((Kind.WRONG,), r"the weights of rank 1 differ from those of rank 0"),
    cases=(
        Case("own-shares", {"own": True}),
        Case("the-same-share", {"own": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """With the loss of this rank."""
    return _train(rank, reduced=False)


def fixed(rank: RankApi) -> Json:
    """With the mean over all ranks."""
    return _train(rank, reduced=True)


def _train(rank: RankApi, reduced: bool) -> Json:
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.ddp import make_ddp, make_optimizer, train_step, weights

    torch.manual_seed(0)
    model = make_ddp(rank)
    optimizer = make_optimizer(model)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    share = torch.ones(2, 4, device=rank.device)
    # Training pulls every output to 1, and so away from the targets of rank 1.
    target = -1.0 if rank.params["own"] and rank.index % 2 else 1.0
    rates = []
    for number in range(6):
        train_step(rank, model, optimizer, number)
        with torch.no_grad():
            loss = (model.module(share) - target).square().mean()
        if reduced:
            dist.all_reduce(loss)
            loss /= rank.world
        schedule.step(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
    return {"rates": rates, "weights": weights(model)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks whose weights differ."""
    return diverged(values)
