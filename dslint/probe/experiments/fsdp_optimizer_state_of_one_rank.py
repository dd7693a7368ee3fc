"""Rank 0 saves `optimizer.state_dict()` of an optimizer over the parameters of `FullyShardedDataParallel`.

As written, the state is that of the optimizer of rank 0; as fixed, `FSDP.optim_state_dict` puts it together. As written
the moments are those of one shard. With NO_SHARD every rank has all of them (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs
from dslint.probe.parts.fsdp import make_layers, sharded

EXPERIMENT = Experiment(
    name="fsdp-optimizer-state-of-one-rank",
    summary="the saved moments are those of one shard",
    rules=("DSL610",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"rank 0 saves \d+ numbers of the moments instead of \d+"),
    cases=(
        Case("full-shard", {"strategy": "FULL_SHARD"}),
        Case("shard-grad-op", {"strategy": "SHARD_GRAD_OP"}),
        Case("no-shard", {"strategy": "NO_SHARD"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The state of the optimizer."""
    return _saved(rank, is_whole=False)


def fixed(rank: RankApi) -> Json:
    """The state of all ranks."""
    return _saved(rank, is_whole=True)


def _saved(rank: RankApi, is_whole: bool) -> Json:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = sharded(rank, make_layers(rank), rank.params["strategy"], use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    (model(inputs(rank, 0)) - 1).pow(2).mean().backward()
    optimizer.step()
    rank.mark("trained")
    state: Any = FullyShardedDataParallel.optim_state_dict(model, optimizer) if is_whole else optimizer.state_dict()
    if rank.index == 0:
        torch.save(state, "optimizer.pt")
    rank.mark("saved")
    return sum(int(moments["exp_avg"].numel()) for moments in state["state"].values())


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another number of numbers in the file."""
    here, expected = values[0], reference[0]
    return None if here == expected else f"rank 0 saves {here} numbers of the moments instead of {expected}"
