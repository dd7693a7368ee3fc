"""Gradients that are accumulated by hand and reduced in every micro batch.

As written, eight micro batches run in two groups and nothing switches the reduction off; as fixed, all but the last of
a group run inside `no_sync()`. The gradients are the same. Groups of one micro batch save nothing (the control).
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="gradients-reduced-in-every-turn",
    summary="gradients are reduced after every micro batch",
    flavour="transformers",
    rules=("DSL638",),
    expect=Expect((Kind.WRONG,), r"gradients are reduced 8 times instead of 2 times"),
    cases=(
        Case("ddp", {"gas": 4, "accelerate": False}),
        Case("accelerate", {"gas": 4, "accelerate": True}),
        Case("one", {"gas": 1, "accelerate": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Reduced in every micro batch."""
    return _train(rank, is_local=False)


def fixed(rank: RankApi) -> Json:
    """Reduced once for each step."""
    return _train(rank, is_local=True)


def _train(rank: RankApi, is_local: bool) -> Json:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    from dslint.probe.parts.accel import make_accelerator
    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

    gas = rank.params["gas"]
    accelerator = make_accelerator(rank) if rank.params["accelerate"] else None
    model: Any = accelerator.prepare(torch.nn.Linear(4, 1)) if accelerator else make_ddp(rank)
    reduced = count()
    # The hook has no annotations: torch compares them with its own classes.
    model.register_comm_hook(None, lambda state, bucket: (next(reduced), allreduce_hook(state, bucket))[1])
    optimizer = make_optimizer(model)
    for number in range(2 * gas):
        is_last = (number + 1) % gas == 0
        local = accelerator.no_sync(model) if accelerator else model.no_sync()
        with local if is_local and not is_last else nullcontext():
            ((model(inputs(rank, number)) - 1).square().mean() / gas).backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro batch {number}")
    return {"reduced": next(reduced)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More reductions."""
    here, expected = values[0]["reduced"], reference[0]["reduced"]
    return None if here == expected else f"gradients are reduced {here} times instead of {expected} times"
