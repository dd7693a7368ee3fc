"""A write to gathered weights that nobody broadcasts.

As written, the script enters `GatheredParameters(params)` and assigns; as fixed, it says `modifier_rank=0`. Without it
the gathered copy is thrown away on leaving, and with it only what that rank wrote is kept. No error comes either way.
Weights of stage 2 are whole, and the write stays.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

EXPERIMENT = Experiment(
    name="zero3-write-lost",
    summary="what is written into gathered weights is gone when the context ends",
    rules=("DSL211",),
    flavour="deepspeed",
    expect=Expect((Kind.WRONG,), r"away from those of the correct run"),
    cases=(
        Case("no-modifier-rank", {"stage": 3, "modifier_rank": None, "writer": -1}),
        Case("another-rank-writes", {"stage": 3, "modifier_rank": 0, "writer": 1}),
        Case("z2", {"stage": 2, "modifier_rank": None, "writer": -1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """As the case says: ``writer`` -1 is every rank."""
    writes = rank.params["writer"] in (-1, rank.index)
    return _write(rank, rank.params["modifier_rank"], writes)


def fixed(rank: RankApi) -> Json:
    """Rank 0 is the one whose values are broadcast, and every rank writes."""
    return _write(rank, 0, True)


def _write(rank: RankApi, modifier: int | None, writes: bool) -> Json:
    import deepspeed
    import torch

    from dslint.probe.parts.zero import config, engine, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"]))
    parameter = trained.module[0].weight
    gathers = rank.params["stage"] == 3
    with torch.no_grad(), deepspeed.zero.GatheredParameters([parameter], modifier_rank=modifier, enabled=gathers):
        if writes:
            parameter.fill_(7.0)
    rank.mark("written")
    return {"weights": weights(trained)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The weights are not those that were written."""
    return off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Which rank writes, and whose values are kept."""
    fact = subject.finding.fact
    stated = (fact("modifier_rank"), fact("writer"), 3)
    return {} if stated == (case.params["modifier_rank"], case.params["writer"], case.params["stage"]) else None
