"""A head that an optimizer trains beside a model inside `DistributedDataParallel`.

As written, the head is wrapped by nothing; as fixed, it is wrapped, too. As written nothing averages its gradients: the
ranks have other weights after one step. A head that stands inside the wrapped model needs no wrapper (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs, make_ddp, weights

EXPERIMENT = Experiment(
    name="module-outside-wrapper",
    summary="gradients of the head are not averaged, and the ranks drift apart",
    rules=("DSL665",),
    expect=Expect((Kind.WRONG,), r"the ranks have different weights"),
    cases=(
        Case("beside", {"inside": False}),
        Case("inside", {"inside": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The head as it is."""
    return _train(rank, wraps=False)


def fixed(rank: RankApi) -> Json:
    """The head in a wrapper of its own."""
    return _train(rank, wraps=True)


def _train(rank: RankApi, wraps: bool) -> Json:
    import torch

    rank.init()
    torch.manual_seed(0)
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1).to(rank.device)
    is_inside = rank.params["inside"]
    model = make_ddp(rank, torch.nn.Sequential(body, head) if is_inside else body)
    judge = make_ddp(rank, head) if wraps and not is_inside else head
    parts = [model] if is_inside else [model, judge]
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)
    out = model(inputs(rank, 0))
    loss = ((out if is_inside else judge(out)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    rank.mark("step")
    return weights(head)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Ranks that differ."""
    return None if all(value == values[0] for value in values) else "the ranks have different weights"
