"""The forward pass runs before `no_sync()`, and only the backward pass inside.

As written, `with model.no_sync(): loss.backward()` of a loss that was computed before; as fixed, the forward pass is
inside as well. The wrapper decides in its forward pass whether the backward pass reduces, so that as written every
micro batch is reduced and nothing is saved. The gradients are the same. Groups of one micro batch never enter
`no_sync` (the control).
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="no-sync-around-backward-only",
    summary="gradients are reduced after every micro batch, and nothing is saved",
    flavour="transformers",
    rules=("DSL275",),
    expect=Expect((Kind.WRONG,), r"gradients are reduced 8 times instead of 2 times"),
    cases=(
        Case("ddp", {"gas": 4, "accelerate": False}),
        Case("accelerate", {"gas": 4, "accelerate": True}),
        Case("one", {"gas": 1, "accelerate": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The backward pass alone."""
    return _train(rank, forward_inside=False)


def fixed(rank: RankApi) -> Json:
    """Both passes."""
    return _train(rank, forward_inside=True)


def _train(rank: RankApi, forward_inside: bool) -> Json:
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

    def local() -> Any:
        return accelerator.no_sync(model) if accelerator else model.no_sync()

    for number in range(2 * gas):
        is_last = (number + 1) % gas == 0
        with local() if forward_inside and not is_last else nullcontext():
            loss = (model(inputs(rank, number)) - 1).square().mean() / gas
            with nullcontext() if is_last else local():
                loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro batch {number}")
    return {"reduced": next(reduced)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More reductions."""
    here, expected = values[0]["reduced"], reference[0]["reduced"]
    return None if here == expected else f"gradients are reduced {here} times instead of {expected} times"
