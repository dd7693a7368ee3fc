"""FSDP that divides weights which only rank 0 has loaded.

As written, rank 0 fills its model and every rank wraps its own; as fixed, every rank fills it (`sync_module_states`
needs GPUs). As written the gathered weights are those of rank 0 in part only. Where every rank has filled its model in
both arms both are right (the control). In the case of own seeds each rank draws its first weights by a seed of its own.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="fsdp-weights-of-one-rank",
    summary="the model that is trained holds the weights of rank 0 in part only",
    rules=("DSL298",),
    expect=Expect((Kind.WRONG,), r"of 64 weights are those that were loaded"),
    cases=(
        Case("rank-0", {"loads_on": [0]}),
        Case("own-seeds", {"loads_on": [], "own_seed": True}),
        Case("every-rank", {"loads_on": [0, 1]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """On the ranks of the case."""
    if rank.params.get("own_seed"):
        return _draw(rank, rank.index)
    return _wrap(rank, rank.params["loads_on"])


def fixed(rank: RankApi) -> Json:
    """On all."""
    return _draw(rank, 0) if rank.params.get("own_seed") else _wrap(rank, [0, 1])


def _draw(rank: RankApi, seed: int) -> Json:
    """Return how many of the gathered weights are those that the seed of rank 0 gives."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    rank.init()
    torch.manual_seed(0)
    wanted = torch.nn.Linear(8, 8, bias=False).weight.detach().clone()
    torch.manual_seed(seed)
    net = torch.nn.Linear(8, 8, bias=False).to(rank.device)
    model = FullyShardedDataParallel(net, device_id=rank.device)
    with FullyShardedDataParallel.summon_full_params(model):
        return int((net.weight.detach().cpu() == wanted).sum())


def _wrap(rank: RankApi, loads_on: list[int]) -> Json:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    rank.init()
    net = torch.nn.Linear(8, 8, bias=False).to(rank.device)
    if rank.index in loads_on:
        with torch.no_grad():
            net.weight.fill_(7.0)
    model = FullyShardedDataParallel(net, device_id=rank.device)
    with FullyShardedDataParallel.summon_full_params(model):
        return sum(float(value) == 7.0 for value in net.weight.detach().flatten())


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer weights of the file than in the other arm."""
    return None if values == reference else f"{values[0]} of 64 weights are those that were loaded"
