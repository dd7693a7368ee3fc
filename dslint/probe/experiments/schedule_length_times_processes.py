"""A schedule over the length of the undivided loader times the number of processes, prepared with the loader.

As written, the length is multiplied; as fixed, it is taken as it is. A prepared schedule makes a step for each process,
and the prepared loader 1/N of the updates: as written, much of the learning rate is left when the loader ends.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="schedule-length-times-processes",
    summary="the schedule lasts as many times longer than the run as there are processes",
    flavour="transformers",
    rules=("DSL628",),
    expect=Expect((Kind.WRONG,), r"0\.5\d* of the learning rate is left instead of 0\.0"),
    cases=(Case("length", {}),),
)


def written(rank: RankApi) -> Json:
    """The length times the processes."""
    return _train(rank, is_multiplied=True)


def fixed(rank: RankApi) -> Json:
    """The length."""
    return _train(rank, is_multiplied=False)


def _train(rank: RankApi, is_multiplied: bool) -> Json:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from dslint.probe.parts.accel import make_accelerator

    accelerator = make_accelerator(rank)
    model: Any = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader: Any = DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=4)
    steps = len(loader) * (accelerator.num_processes if is_multiplied else 1)
    schedule: Any = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for (rows,) in loader:
        accelerator.backward(model(rows).square().mean())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {"left": round(float(optimizer.param_groups[0]["lr"]), 4)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What is left of the learning rate."""
    here, expected = values[0]["left"], reference[0]["left"]
    return None if here == expected else f"{here} of the learning rate is left instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "length" and subject.finding.fact("factor") == "num_processes" else None
