"""Two prepared models in a block of `accelerator.accumulate` that names one of them.

As written, the block names the first; as fixed, both. The gradients of the second are reduced after each micro batch
instead of once a step, which a communication hook counts.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="model-outside-accumulate",
    summary="the gradients of the model that is not named are reduced after each micro batch",
    flavour="transformers",
    rules=("DSL629",),
    expect=Expect((Kind.WRONG,), r"reduced 4 times instead of 1"),
    cases=(
        Case("accumulated", {"gas": 4}),
        Case("one-micro-batch", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """One is named."""
    return _train(rank, is_named=False)


def fixed(rank: RankApi) -> Json:
    """Both are."""
    return _train(rank, is_named=True)


def _train(rank: RankApi, is_named: bool) -> Json:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    from dslint.probe.parts.accel import make_accelerator

    steps = rank.params["gas"]
    accelerator = make_accelerator(rank, gradient_accumulation_steps=steps)
    first: Any = torch.nn.Linear(4, 4)
    second: Any = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    first, second, optimizer = accelerator.prepare(first, second, optimizer)
    reduced: list[int] = []

    def count(state: Any, bucket: Any) -> Any:
        reduced.append(1)
        return allreduce_hook(state, bucket)

    second.register_comm_hook(None, lambda state, bucket: count(state, bucket))  # one without annotations
    for number in range(steps):
        with accelerator.accumulate(*((first, second) if is_named else (first,))):
            accelerator.backward(second(first(torch.ones(2, 4, device=rank.device))).mean())
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
    return {} if case.name == "accumulated" and subject.finding.code == "DSL629" else None
