"""A forward of a partitioned model on rank 0 only: an evaluation behind a rank test.

At ZeRO stage 3 every forward gathers the weights from all ranks. As written, rank 0 evaluates alone (and then trains
with the others); as fixed, all ranks evaluate and rank 0 could print. With whole weights (stage 2) the same code is
right. A small model hides the mistake at stage 3: weights that are used again within `stage3_max_reuse_distance` (1e9
elements by default) stay gathered, so the next forward of rank 0 gathers nothing and its lonely calls pair up with
those of the others. The experiment therefore sets the distance and the persistence threshold to 0.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-forward-on-one-rank",
    summary="rank 0 runs a forward of a model whose weights are spread over all ranks",
    rules=("DSL201", "DSL202"),
    scales=True,
    flavour="deepspeed",
    expect=Expect((Kind.STALL,), r"_all_?gather|partitioned_param_coordinator|distributed_c10d\.py"),
    cases=(
        Case("forward-z3", {"stage": 3, "then": "", "gathered": False}),
        Case(
            "forward-z3-then-train",
            {"stage": 3, "then": "train", "gathered": False},
            Expect((Kind.STALL, Kind.SIGNAL, Kind.RAISE), r"_all_?gather|reduce_scatter|SIGABRT|Connection|mismatch"),
        ),
        Case("forward-z3-inside-gather", {"stage": 3, "then": "", "gathered": True, "small": True}),
        Case(
            "forward-z3-small-model",
            {"stage": 3, "then": "train", "gathered": False, "small": True},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case("forward-z2", {"stage": 2, "then": "train", "gathered": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 evaluates."""
    return _run(rank, rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """All ranks evaluate."""
    return _run(rank, True)


def _run(rank: RankApi, evaluates: bool) -> Json:
    import deepspeed
    import torch

    from dslint.probe.parts.zero import batch, config, engine, train

    rank.init()
    defaults = {"stage3_max_live_parameters": 10**9, "stage3_max_reuse_distance": 10**9}
    trained = engine(rank, config(rank.params["stage"], **(defaults if rank.params.get("small") else {})))
    train(rank, trained, 1)
    weights = list(trained.module.parameters())
    with torch.no_grad(), deepspeed.zero.GatheredParameters(weights, enabled=rank.params["gathered"]):
        value = float(trained(batch(rank, 7)).sum()) if evaluates else 0.0
    rank.mark("past the evaluation")
    if rank.params["then"]:
        train(rank, trained, 1, first=1)
    return value


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """A forward or `generate` of an engine."""
    finding = subject.finding
    if finding.fact("family") != "engine" or finding.fact("collective") not in ("forward", "generate", "chat"):
        return None
    return {"stage": 3} if case.name == "forward-z3" else None
