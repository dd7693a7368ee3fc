"""Two models are trained on each batch in two blocks of `accelerator.accumulate`.

As written, each model has a block of its own; as fixed, one block names both. Eight batches are trained on; what
steps is counted by the optimizers inside.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="batch-counted-twice",
    summary="with an even number of micro batches the optimizer of the first block never steps",
    flavour="transformers",
    rules=("DSL714",),
    expect=Expect((Kind.WRONG,), r"steps 0 and 4 times instead of 2 and 2"),
    cases=(
        Case("accumulated", {"gas": 4}),
        Case("one-micro-batch", {"gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
_BATCHES = 8


def written(rank: RankApi) -> Json:
    """Two blocks."""
    return _train(rank, is_apart=True)


def fixed(rank: RankApi) -> Json:
    """One."""
    return _train(rank, is_apart=False)


def _train(rank: RankApi, is_apart: bool) -> Json:
    import torch

    from dslint.probe.parts.accel import make_accelerator

    accelerator = make_accelerator(rank, gradient_accumulation_steps=rank.params["gas"])
    nets: list[Any] = [torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]
    plain = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    counts = [0, 0]

    def counted(number: int) -> Any:
        def count(*_: Any) -> None:
            counts[number] += 1

        return count

    for number, optimizer in enumerate(plain):
        optimizer.register_step_post_hook(counted(number))
    *models, first, second = accelerator.prepare(*nets, *plain)

    def update(model: Any, optimizer: Any) -> None:
        accelerator.backward(model(torch.ones(2, 4, device=rank.device)).mean())
        optimizer.step()
        optimizer.zero_grad()

    pairs = list(zip(models, (first, second), strict=True))
    for batch in range(_BATCHES):
        if is_apart:
            for model, optimizer in pairs:
                with accelerator.accumulate(model):
                    update(model, optimizer)
        else:
            with accelerator.accumulate(*models):
                for model, optimizer in pairs:
                    update(model, optimizer)
        rank.mark(f"batch {batch}")
    return {"steps": counts}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other numbers of steps."""
    here, expected = values[0]["steps"], reference[0]["steps"]
    same = here == expected
    return None if same else f"steps {here[0]} and {here[1]} times instead of {expected[0]} and {expected[1]}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "accumulated" and subject.finding.code == "DSL714" else None
