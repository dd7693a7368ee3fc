"""Ranks that decode texts of different lengths with a partitioned model.

As written, each rank stops when its own text is done; as fixed, all go on until the longest is done and throw the
surplus away (what `synced_gpus=True` does). Under ZeRO-3 every forward gathers weights from all ranks, so the rank with
the longer text waits for those that have stopped. A model below the persistence threshold is never partitioned and
passes; so do ZeRO-2 and equal lengths.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-decode-loop",
    summary="ranks decode different numbers of tokens with a model whose weights are spread over all ranks",
    flavour="deepspeed",
    expect=Expect((Kind.STALL,), r"_all_?gather|partitioned_param_coordinator|distributed_c10d\.py"),
    cases=(
        Case("z3", {"stage": 3, "lengths": [7, 3]}),
        Case("z3-small-model", {"stage": 3, "lengths": [7, 3], "small": True}, verdict=Verdict.NOT_REPRODUCED),
        Case("z3-equal-lengths", {"stage": 3, "lengths": [5, 5]}, verdict=Verdict.NOT_REPRODUCED),
        Case("z2", {"stage": 2, "lengths": [7, 3]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Until the own text is done."""
    return _decode(rank, synced=False)


def fixed(rank: RankApi) -> Json:
    """Until the longest text is done."""
    return _decode(rank, synced=True)


def _decode(rank: RankApi, synced: bool) -> Json:
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.zero import batch, config, engine

    rank.init()
    lengths = rank.params["lengths"]
    length = lengths[rank.index % len(lengths)]
    defaults = {"stage3_param_persistence_threshold": 10**5}
    model = engine(rank, config(rank.params["stage"], **(defaults if rank.params.get("small") else {})))
    tokens: list[float] = []
    step = 0
    while True:
        open_here = step < length
        if synced:
            left = torch.tensor([float(open_here)], device=rank.device)
            dist.all_reduce(left)
            go_on = bool(left.item())
        else:
            go_on = open_here
        if not go_on:
            return len(tokens)
        with torch.no_grad():
            value = float(model(batch(rank, step)).sum())
        if open_here:
            tokens.append(value)
        step += 1
        rank.mark(f"token {step}")
