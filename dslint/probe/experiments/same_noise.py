"""All ranks seed torch alike and draw the noise of their training steps from that generator.

As written, the seed is the one of the case; as fixed, it holds the rank. With one seed both ranks draw the same noise
for their different batches; with the rank in it, other noise (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="same-noise",
    summary="all ranks draw the same noise in every training step",
    rules=("DSL283",),
    expect=Expect((Kind.WRONG,), r"rank 1 draws the same noise as rank 0"),
    cases=(
        Case("one-seed", {"own": False}),
        Case("seed-of-rank", {"own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The seed of the case."""
    return _train(rank, own=rank.params["own"])


def fixed(rank: RankApi) -> Json:
    """A seed for each rank."""
    return _train(rank, own=True)


def _train(rank: RankApi, own: bool) -> Json:
    import torch

    from dslint.probe.parts.ddp import inputs, make_ddp, make_optimizer

    torch.manual_seed(3)
    model = make_ddp(rank)
    if own:
        torch.manual_seed(3 + rank.index)
    optimizer = make_optimizer(model)
    drawn: list[float] = []
    for number in range(2):
        clean = inputs(rank, number)
        noise = torch.randn_like(clean)
        drawn += [float(value) for value in noise.flatten()]
        optimizer.zero_grad()
        (model(clean + noise) - 1).square().mean().backward()
        optimizer.step()
        rank.mark(f"step {number}")
    return {"noise": drawn}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """The same noise on two ranks."""
    for index, found in enumerate(values[1:], 1):
        if found["noise"] == values[0]["noise"]:
            return f"rank {index} draws the same noise as rank 0"
    return None
