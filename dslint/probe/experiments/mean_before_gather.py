"""The mean of each batch of a prepared loader, gathered by `gather_for_metrics`.

Ten samples in batches of four on two ranks, of which the first three are right. As written, each rank takes the mean
over its batch and gathers that; as fixed, the samples are gathered. Sixteen samples fill all batches (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="mean-before-gather",
    summary="the mean of gathered means counts samples twice that fill the last batch",
    flavour="transformers",
    rules=("DSL637",),
    expect=Expect((Kind.WRONG,), r"score [\d.]+, not [\d.]+"),
    cases=(
        Case("short-batch", {"samples": 10}),
        Case("full-batches", {"samples": 16}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Means are gathered."""
    return _evaluate(rank, each=False)


def fixed(rank: RankApi) -> Json:
    """Samples are gathered."""
    return _evaluate(rank, each=True)


def _evaluate(rank: RankApi, each: bool) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator

    accelerator = make_accelerator(rank)
    right = [float(at < 3) for at in range(int(rank.params["samples"]))]
    loader: Any = torch.utils.data.DataLoader(right, batch_size=4)
    found = []
    for batch in accelerator.prepare(loader):
        found.append(accelerator.gather_for_metrics(batch if each else batch.mean().reshape(1)))
    rank.mark("gathered")
    return {"score": round(torch.cat(found).mean().item(), 4)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another score."""
    here, expected = values[0]["score"], reference[0]["score"]
    return None if here == expected else f"score {here}, not {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether means are gathered."""
    return {} if case.name == "short-batch" and not subject.finding.fact("samples") else None
