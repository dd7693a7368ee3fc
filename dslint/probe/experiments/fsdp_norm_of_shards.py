"""`torch.nn.utils.clip_grad_norm_` on the parameters of `FullyShardedDataParallel`.

As written, each rank takes the norm of its own shards and scales them by that; as fixed, `model.clip_grad_norm_` takes
the norm over all ranks. The ranks scale their parts of one gradient differently: it is clipped too little and points
elsewhere. With NO_SHARD every rank holds the whole gradient and both agree (the control). Nothing raises.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs
from dslint.probe.parts.fsdp import make_layers, sharded

EXPERIMENT = Experiment(
    name="fsdp-norm-of-shards",
    summary="gradients are clipped by the norm of the shards of one rank",
    rules=("DSL290",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"the norm of the gradient is [\d.]+ on rank 0 and [\d.]+ on rank 1 instead of"),
    cases=(
        Case("full-shard", {"strategy": "FULL_SHARD"}),
        Case("shard-grad-op", {"strategy": "SHARD_GRAD_OP"}),
        Case("no-shard", {"strategy": "NO_SHARD"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
MOST = 0.05


def written(rank: RankApi) -> Json:
    """By the function of torch."""
    return _norm(rank, by_function=True)


def fixed(rank: RankApi) -> Json:
    """By the method of the wrapper."""
    return _norm(rank, by_function=False)


def _norm(rank: RankApi, by_function: bool) -> float:
    import torch

    model = sharded(rank, make_layers(rank), rank.params["strategy"], use_orig_params=True)
    (model(inputs(rank, 0)) - 1).pow(2).mean().backward()
    rank.mark("backward")
    if by_function:
        return float(torch.nn.utils.clip_grad_norm_(model.parameters(), MOST))
    return float(model.clip_grad_norm_(MOST))


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Norms that are not that of the whole gradient."""
    if all(abs(here - there) <= 1e-4 * there for here, there in zip(values, reference, strict=True)):
        return None
    found = " and ".join(f"{value:.4g} on rank {index}" for index, value in enumerate(values))
    return f"the norm of the gradient is {found} instead of {reference[0]:.4g}"
