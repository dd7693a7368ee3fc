"""`DataLoader(dataset, sampler=sampler, shuffle=True)`.

As written, both are given; as fixed, the sampler alone (a `DistributedSampler` shuffles by itself). The constructor
raises on every rank. A `batch_sampler` excludes `shuffle`, a batch size and a sampler in the same way. The
controls are ``shuffle=False`` beside a sampler, and a `batch_sampler` alone.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_BATCHES = Expect((Kind.RAISE,), r"ValueError: batch_sampler option is mutually exclusive with")

EXPERIMENT = Experiment(
    name="shuffle-with-sampler",
    summary="the DataLoader refuses a sampler together with shuffle",
    rules=("DSL256",),
    expect=Expect((Kind.RAISE,), r"ValueError: sampler option is mutually exclusive with shuffle"),
    cases=(
        Case("shuffle", {"sampler": "sampler", "arguments": {"shuffle": True}}),
        Case("batch-sampler-shuffle", {"sampler": "batch_sampler", "arguments": {"shuffle": True}}, _BATCHES),
        Case("batch-sampler-size", {"sampler": "batch_sampler", "arguments": {"batch_size": 4}}, _BATCHES),
        Case("no-shuffle", {"sampler": "sampler", "arguments": {"shuffle": False}}, verdict=Verdict.NOT_REPRODUCED),
        Case(
            "batch-sampler-alone",
            {"sampler": "batch_sampler", "arguments": {"batch_size": 1}},
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """The sampler and what it excludes."""
    return _count(rank, rank.params["arguments"])


def fixed(rank: RankApi) -> Json:
    """The sampler alone."""
    return _count(rank, {})


def _count(rank: RankApi, arguments: dict[str, Any]) -> int:
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

    rank.init()
    items: Any = list(range(8))
    sampler: Any = DistributedSampler(items)
    if rank.params["sampler"] == "batch_sampler":
        sampler = BatchSampler(sampler, 2, drop_last=False)
    return len(list(DataLoader(items, **{rank.params["sampler"]: sampler}, **arguments)))


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The arguments of the finding."""
    fact = subject.finding.fact
    wanted = "shuffle" if fact("sampler") == "sampler" else "batch-sampler-size"
    if fact("sampler") == "batch_sampler" and fact("argument") == "shuffle":
        wanted = "batch-sampler-shuffle"
    return {} if case.name == wanted else None
