"""Gradients that `overlap_comm` reduces while backward writes the next ones.

As written, `overlap_comm` is true; as fixed, false, with the same seed and data. Many small buckets and a slow
transport (no peer-to-peer, no shared memory) make the reduction outlast the copying. The symptom is a gradient norm
that differs from the reference, is nan or 0. A race need not show: an arm that passes says nothing. On a CPU it cannot
show at all: the CPU accelerator has no streams, all work of a rank is one sequence, and every combination gives the
same bits.
"""

from __future__ import annotations

import math
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="overlap-comm-race",
    summary="a gradient bucket is overwritten while it is reduced",
    rules=("DSL160",),
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"gradient norm"),
    needs=Needs(gpus=2, why="the CPU accelerator has no streams, so nothing overlaps there"),
    race=True,
    limit=120.0,
    cases=(
        Case("z2", {"stage": 2, "bucket": 500000, "layers": 48, "width": 1024, "steps": 6}),
        Case("z1", {"stage": 1, "bucket": 500000, "layers": 48, "width": 1024, "steps": 6}),
        Case("z3", {"stage": 3, "bucket": 500000, "layers": 48, "width": 1024, "steps": 6}),
    ),
)


def written(rank: RankApi) -> Json:
    """Overlapped."""
    return _train(rank, overlaps=True)


def fixed(rank: RankApi) -> Json:
    """One after the other."""
    return _train(rank, overlaps=False)


def _train(rank: RankApi, overlaps: bool) -> Json:
    import os

    from dslint.probe.parts.zero import batch, config, engine, loss_of

    # Through sockets the reduction takes longer than the backward of a layer.
    os.environ.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1")
    rank.init()
    params = rank.params
    settings = config(
        params["stage"], micro=4, overlap_comm=overlaps, contiguous_gradients=True, gradient_clipping=1e9,
        reduce_bucket_size=params["bucket"],
    )  # fmt: skip
    settings["bf16"] = {"enabled": rank.device != "cpu"}
    trained = engine(rank, settings, _deep(params["layers"], params["width"]))
    norms, losses = [], []
    for step in range(params["steps"]):
        rows = batch(rank, step, rows=4, width=params["width"]).to(next(trained.module.parameters()).dtype)
        loss = loss_of(trained(rows))
        trained.backward(loss)
        trained.step()
        norms.append(float(trained.get_global_grad_norm()))
        losses.append(float(loss.detach()))
        rank.mark(f"step {step}")
    return {"norms": norms, "losses": losses}


def _deep(layers: int, width: int) -> Any:
    import torch

    blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(layers)]
    return torch.nn.Sequential(*blocks, torch.nn.Linear(width, 1))


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A norm that is none, or that differs from the reference by more than the rounding of bf16 reductions."""
    for step, (here, expected) in enumerate(zip(values[0]["norms"], reference[0]["norms"], strict=True)):
        if not math.isfinite(here) or here == 0.0 or abs(here - expected) > 0.02 * abs(expected):
            return f"the gradient norm of step {step} is {here:.6g}, without overlap it is {expected:.6g}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The stage of the config."""
    return {} if subject.finding.fact("stage") == case.params["stage"] else None
