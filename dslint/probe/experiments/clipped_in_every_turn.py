"""Two micro batches make a step, and the gradients are clipped after each of them.

As written, the sum so far is clipped in both turns; as fixed, the whole sum once. The gradients of the micro batches
point in two directions, and how far the weights have moved in the first one is compared.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="clipped-in-every-turn",
    summary="clipping after each micro batch: the first of two has a twentieth of the weight of the second",
    rules=("DSL774",),
    expect=Expect((Kind.WRONG,), r"moved by 0.005 instead of 0.071"),
    cases=(Case("two-micro-batches", {"limit": 0.1}),),
)


def written(rank: RankApi) -> Json:
    """In both turns."""
    return _moved(rank, turns=(0, 1))


def fixed(rank: RankApi) -> Json:
    """Before the step."""
    return _moved(rank, turns=(1,))


def _moved(rank: RankApi, turns: tuple[int, ...]) -> Json:
    import torch

    rank.init()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).to(rank.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.module.weight.detach().clone()
    for turn in range(2):
        batch = torch.zeros(4, 2, device=rank.device)
        batch[:, turn] = 2.0  # a gradient of the norm 2, in a direction of its own
        model(batch).mean().backward()
        if turn in turns:
            torch.nn.utils.clip_grad_norm_(model.parameters(), rank.params["limit"])
    optimizer.step()
    moved = (model.module.weight.detach() - before).abs()
    return {"moved": float(moved[0, 0])}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A shorter way in the direction of the first."""
    here, expected = values[0]["moved"], reference[0]["moved"]
    return None if abs(here - expected) < 1e-3 else f"moved by {here:.3f} instead of {expected:.3f}"
