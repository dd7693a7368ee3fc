"""The gradient norm that ZeRO reports, against one computed by hand.

As written, an engine accumulates two micro batches and reports `get_global_grad_norm()`; as fixed, the same gradients
come from the plain model: the mean over ranks and micro batches, without DeepSpeed. DeepSpeed 0.17.6 reports too little
for stage 2 with accumulation; 0.18.3 and later report the same number at every stage.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi
from dslint.probe.outcome import Kind, Verdict

_BAD = Needs(versions=("deepspeed==0.17.6",), why="the wrong norm was measured in this release")
_GOOD = Needs(versions=("deepspeed>=0.18.3",), why="an earlier release reports a wrong norm")

EXPERIMENT = Experiment(
    name="zero-gradient-norm",
    summary="the reported gradient norm is not that of the gradients",
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"gradient norm"),
    cases=(
        Case("z2-accumulating-0.17.6", {"stage": 2, "gas": 2}, needs=_BAD),
        *(
            Case(f"z{stage}-accumulating", {"stage": stage, "gas": 2}, verdict=Verdict.NOT_REPRODUCED, needs=_GOOD)
            for stage in (1, 2, 3)
        ),
        *(
            Case(
                f"z{stage}-not-contiguous", {"stage": stage, "gas": 2, "contiguous": False},
                verdict=Verdict.NOT_REPRODUCED, needs=Needs(versions=("deepspeed>=0.19.8",)),
            )
            for stage in (1, 2)
        ),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """What the engine reports after its step."""
    from dslint.probe.parts.zero import batch, config, engine, loss_of

    rank.init()
    # Norms are taken for clipping; the limit is far away.
    settings = config(
        rank.params["stage"], gas=rank.params["gas"], gradient_clipping=1000.0,
        contiguous_gradients=rank.params.get("contiguous", True),
    )  # fmt: skip
    trained = engine(rank, settings)
    for step in range(rank.params["gas"]):
        trained.backward(loss_of(trained(batch(rank, step))))
        trained.step()
    return {"norm": float(trained.get_global_grad_norm())}


def fixed(rank: RankApi) -> Json:
    """The norm of the mean gradient of the plain model."""
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.zero import batch, loss_of, model

    rank.init()
    module: Any = model().to(rank.device)
    for step in range(rank.params["gas"]):
        (loss_of(module(batch(rank, step))) / rank.params["gas"]).backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()]) / rank.world
    dist.all_reduce(gradient)
    return {"norm": float(gradient.norm())}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A norm that differs by more than rounding."""
    here, expected = values[0]["norm"], reference[0]["norm"]
    near = abs(here - expected) <= 1e-4 * expected
    return None if near else f"the gradient norm is reported as {here:.6g}, computed by hand it is {expected:.6g}"
