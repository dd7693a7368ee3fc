"""The number of epochs follows from the number of steps and the length of a loader that accelerate divides later.

As written, the length is asked before `prepare`; as fixed, afterwards. As written, the run ends after half the steps.
"""

from __future__ import annotations

import math
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="undivided-length-rules-the-loop",
    summary="the run ends after a part of the steps that are asked for",
    flavour="transformers",
    rules=("DSL675",),
    expect=Expect((Kind.WRONG,), r"4 steps instead of 8"),
    cases=(Case("length", {}),),
)


def written(rank: RankApi) -> Json:
    """The length before the loader is divided."""
    return _train(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """The length of the divided loader."""
    return _train(rank, is_early=False)


def _train(rank: RankApi, is_early: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from dslint.probe.parts.accel import make_accelerator

    accelerator = make_accelerator(rank)
    loader: Any = DataLoader(TensorDataset(torch.ones(32, 4)), batch_size=2)
    whole = len(loader)
    model: Any = torch.nn.Linear(4, 1)
    model, loader = accelerator.prepare(model, loader)
    steps = 0
    for _ in range(math.ceil(8 * 2 / (whole if is_early else len(loader)))):
        for (rows,) in loader:
            accelerator.backward(model(rows).square().mean())
            steps += 1
    return {"steps": steps // 2}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How many steps were made."""
    here, expected = values[0]["steps"], reference[0]["steps"]
    return None if here == expected else f"{here} steps instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "length" and subject.finding.fact("counts") == "loader" else None
