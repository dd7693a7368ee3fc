"""The optimizer steps twice for one backward, with the clipping between the two.

As written, a step comes before the clipping and another one after it; as fixed, only the one after it. What the
weights have moved is compared.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="stepped-twice-on-one-backward",
    summary="two steps for one backward: the weights move by the unclipped step and by the clipped one",
    rules=("DSL741",),
    expect=Expect((Kind.WRONG,), r"moved by 2.100 instead of 0.100"),
    cases=(Case("clipped", {"limit": 0.1}),),
)


def written(rank: RankApi) -> Json:
    """Two steps."""
    return _moved(rank, is_twice=True)


def fixed(rank: RankApi) -> Json:
    """One."""
    return _moved(rank, is_twice=False)


def _moved(rank: RankApi, is_twice: bool) -> Json:
    import torch

    rank.init()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False).to(rank.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.module.weight.detach().clone()
    model(torch.ones(2, 4, device=rank.device)).mean().backward()  # a gradient of the norm 2
    if is_twice:
        optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), rank.params["limit"])
    optimizer.step()
    return {"moved": float((model.module.weight.detach() - before).norm())}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A longer way."""
    here, expected = values[0]["moved"], reference[0]["moved"]
    return None if abs(here - expected) < 1e-3 else f"moved by {here:.3f} instead of {expected:.3f}"
