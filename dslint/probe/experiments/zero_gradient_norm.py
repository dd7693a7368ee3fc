"""The gradient of an accumulated step of ZeRO, against one computed by hand.

As written, an engine accumulates two micro batches, reports `get_global_grad_norm()` and steps; as fixed, the same
gradients come from the plain model (the mean over ranks and micro batches), and the step is w - lr * gradient, without
DeepSpeed. DeepSpeed 0.17.6 to 0.18.2 report too small a norm at stage 2 and move the weights elsewhere; 0.17.0, and
0.18.3 and later, agree with the hand at every stage. Gradients stay contiguous: without that, releases up to 0.19.6
skip the reduction on the CPU, since they sort tensors by type names that no CPU tensor has, and GPUs are not concerned.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

_BAD = Needs(versions=("deepspeed>=0.17.6,<0.18.3",), why="other releases take the right gradient")
_GOOD = Needs(versions=("deepspeed>=0.18.3",), why="an earlier release reports a wrong norm")

EXPERIMENT = Experiment(
    name="zero-gradient-norm",
    summary="an accumulated step is taken with another gradient than that of the micro batches",
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"gradient norm"),
    cases=(
        Case("z2-accumulating-old", {"stage": 2, "gas": 2}, needs=_BAD),
        *(
            Case(f"z{stage}-accumulating", {"stage": stage, "gas": 2}, verdict=Verdict.NOT_REPRODUCED, needs=_GOOD)
            for stage in (1, 2, 3)
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """What the engine reports after its step, and where it led."""
    from dslint.probe.parts.zero import batch, config, engine, loss_of, weights

    rank.init()
    # Norms are taken for clipping; the limit is far away.
    settings = config(rank.params["stage"], gas=rank.params["gas"], gradient_clipping=1000.0)
    trained = engine(rank, settings)
    for step in range(rank.params["gas"]):
        trained.backward(loss_of(trained(batch(rank, step))))
        trained.step()
    return {"norm": float(trained.get_global_grad_norm()), "weights": weights(trained)}


def fixed(rank: RankApi) -> Json:
    """The norm of the mean gradient of the plain model, and one step of SGD along it."""
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.zero import batch, loss_of, model

    rank.init()
    module: Any = model().to(rank.device)
    for step in range(rank.params["gas"]):
        (loss_of(module(batch(rank, step))) / rank.params["gas"]).backward()
    gradient = torch.cat([p.grad.flatten() for p in module.parameters()]) / rank.world
    dist.all_reduce(gradient)
    start = torch.cat([p.detach().flatten() for p in module.parameters()])
    return {"norm": float(gradient.norm()), "weights": (start - 0.1 * gradient).tolist()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A norm or weights that differ by more than rounding."""
    here, expected = values[0]["norm"], reference[0]["norm"]
    apart = off_course(values, reference)
    if abs(here - expected) <= 1e-4 * expected and apart is None:
        return None
    moved = apart or "the weights are right"
    return f"the gradient norm is reported as {here:.6g}, computed by hand it is {expected:.6g}; {moved}"
