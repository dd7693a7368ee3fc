"""A buffer that a DDP model averages from its batches.

Each rank has batches of its own number. As written, the forward pass moves the buffer towards the mean of its batch; as
fixed, towards the mean over all ranks. As written the buffer of every rank is that of rank 0. Batches that are equal on
all ranks are the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="buffer-of-own-batch",
    summary="the buffer knows the batches of rank 0 alone",
    flavour="torch",
    rules=("DSL683",),
    expect=Expect((Kind.WRONG,), r"the buffer of rank 0 is [\d.]+ instead of [\d.]+"),
    cases=(
        Case("own", {"same": False}),
        Case("same", {"same": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The mean of the rank's batch."""
    return _train(rank, is_reduced=False)


def fixed(rank: RankApi) -> Json:
    """The mean over all ranks."""
    return _train(rank, is_reduced=True)


def _train(rank: RankApi, is_reduced: bool) -> Json:
    import torch

    from dslint.probe.parts.ddp import make_ddp

    class Centre(torch.nn.Module):
        centre: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.register_buffer("centre", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean = x.mean()
            if is_reduced:
                torch.distributed.all_reduce(mean)
                mean = mean / torch.distributed.get_world_size()
            out: torch.Tensor = self.linear(x - self.centre)
            self.centre.lerp_(mean, 0.5)
            return out

    model: Any = make_ddp(rank, Centre())
    for number in range(4):
        value = 1.0 if rank.params["same"] else 1.0 + rank.index
        model(torch.full((2, 4), value)).mean().backward()
        rank.mark(f"batch {number}")
    return {"centre": float(model.module.centre)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another buffer."""
    here, expected = values[0]["centre"], reference[0]["centre"]
    return None if abs(here - expected) < 1e-6 else f"the buffer of rank 0 is {here:.3f} instead of {expected:.3f}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - the batches are the case's own
    """The case of batches of each rank's own."""
    return {} if case.name == "own" else None
