"""Rank 0 writes the results of its own part of the samples.

As written, each rank goes through the part that a `DistributedSampler` gives it, and rank 0 writes what it has; as
fixed, the parts are gathered before. A file for each rank is the control.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="part-reported-as-whole",
    summary="the file holds the results of one rank",
    flavour="torch",
    one_host=True,
    rules=("DSL635",),
    expect=Expect((Kind.WRONG,), r"5 of 10 results are in the file"),
    cases=(
        Case("rank-0", {"each": False}),
        Case("a-file-for-each-rank", {"each": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Nothing is gathered."""
    return _evaluate(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """The parts of all ranks."""
    return _evaluate(rank, gathers=True)


def _evaluate(rank: RankApi, gathers: bool) -> Json:
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    rank.init()
    items: Any = list(range(10))
    found = {}
    for batch in DataLoader(items, batch_size=1, sampler=DistributedSampler(items, shuffle=False)):
        found[int(batch[0])] = int(batch[0]) ** 2
    each = rank.params["each"]
    if gathers and not each:
        parts: list[Any] = [None] * rank.world
        dist.all_gather_object(parts, found)
        found = {place: result for part in parts for place, result in part.items()}
    folder = Path(rank.folder)
    if each or rank.index == 0:
        (folder / f"results-{rank.index}.json").write_text(json.dumps(found))
    dist.barrier()
    seen = [
        json.loads((folder / name).read_text()) for name in sorted(os.listdir(folder)) if name.startswith("results")
    ]
    return sorted({int(place) for part in seen for place in part})


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Results that no file holds."""
    (mine, *_), (all_, *_) = values, reference
    return f"{len(mine)} of {len(all_)} results are in the file" if len(mine) < len(all_) else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Rank 0 alone."""
    return {} if case.name == "rank-0" and subject.finding.fact("kind") == "results" else None
