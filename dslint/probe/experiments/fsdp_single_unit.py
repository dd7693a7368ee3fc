"""FSDP around a model of several layers, without and with a wrapping policy.

As written, the model is one unit; as fixed, each layer is a unit. Before a layer runs, a hook adds up the parameters
that are there in full on this rank: as written these are all of the model. A policy that matches no layer changes
nothing (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="fsdp-single-unit",
    summary="every rank holds all parameters of the model at once",
    rules=("DSL641",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"a rank holds \d+ numbers at once instead of \d+"),
    cases=(
        Case("layers", {"matches": True}),
        Case("no-match", {"matches": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
LAYERS, WIDTH = 6, 8


def written(rank: RankApi) -> Json:
    """Without a policy."""
    return _most(rank, has_policy=False)


def fixed(rank: RankApi) -> Json:
    """Each layer is a unit."""
    return _most(rank, has_policy=True)


def _most(rank: RankApi, has_policy: bool) -> int:
    """Return the most numbers of parameters that a rank holds in full when a layer runs."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    rank.init()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    wanted = torch.nn.Linear if rank.params["matches"] else torch.nn.Conv2d
    model: Any = FullyShardedDataParallel(
        torch.nn.Sequential(*layers),
        device_id=torch.device(rank.device),
        auto_wrap_policy=ModuleWrapPolicy({wanted}) if has_policy else None,
        limit_all_gathers=True,
        forward_prefetch=False,
    )
    held: list[int] = []

    def look(*_: Any) -> None:
        sizes = [p.numel() for layer in layers for p in (layer.weight, layer.bias) if p.untyped_storage().size()]
        held.append(sum(sizes))

    for layer in layers:
        layer.register_forward_pre_hook(look)
    model(torch.ones(2, WIDTH, device=rank.device)).mean().backward()
    return max(held)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More numbers at once."""
    most, least = max(values), max(reference)
    return f"a rank holds {most} numbers at once instead of {least}" if most > least else None
