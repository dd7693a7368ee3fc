"""A block of `accelerator.accumulate` that gets its models as a list.

As written, `accumulate([model])`; as fixed, `accumulate(model)`. A communication hook counts how often the gradients
are reduced in a step of several micro batches.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="accumulate-of-a-list",
    summary="the gradients of models in a list are reduced after each micro batch",
    flavour="transformers",
    rules=("DSL738",),
    expect=Expect((Kind.WRONG,), r"reduced 4 times instead of 1"),
    cases=(
        Case("accumulated", {"gas": 4}),
        Case("one-micro-batch", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """A list."""
    return _train(rank, is_list=True)


def fixed(rank: RankApi) -> Json:
    """The model itself."""
    return _train(rank, is_list=False)


def _train(rank: RankApi, is_list: bool) -> Json:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    from dslint.probe.parts.accel import make_accelerator

    steps = rank.params["gas"]
    accelerator = make_accelerator(rank, gradient_accumulation_steps=steps)
    model: Any = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    reduced: list[int] = []

    def count(state: Any, bucket: Any) -> Any:
        reduced.append(1)
        return allreduce_hook(state, bucket)

    model.register_comm_hook(None, lambda state, bucket: count(state, bucket))  # one without annotations
    for number in range(steps):
        with accelerator.accumulate([model] if is_list else model):
            accelerator.backward(model(torch.ones(2, 4, device=rank.device)).mean())
            optimizer.step()
            optimizer.zero_grad()
        rank.mark(f"micro-batch {number}")
    return {"reduced": len(reduced)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More reductions."""
    here, expected = values[0]["reduced"], reference[0]["reduced"]
    return None if here == expected else f"reduced {here} times instead of {expected}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "accumulated" and subject.finding.code == "DSL738" else None
