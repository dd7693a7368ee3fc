"""A loss of rows that `all_gather` has brought together.

As written, the loss is computed from what `all_gather` gives; as fixed, the own rows are put back into the list. No
gradient flows through the collective: as written the weight behind the rows has none. Where the own rows go into the
loss beside the gathered ones it has one in both arms (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs

EXPERIMENT = Experiment(
    name="gathered-values-lost",
    summary="the weight behind the gathered rows gets no gradient",
    rules=("DSL299",),
    expect=Expect((Kind.WRONG,), r"the weight has no gradient"),
    cases=(
        Case("gathered", {"own": False}),
        Case("own-beside", {"own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """As they come."""
    return _train(rank, puts_back=False)


def fixed(rank: RankApi) -> Json:
    """With the own rows."""
    return _train(rank, puts_back=True)


def _train(rank: RankApi, puts_back: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(rank.device)
    temperature = torch.nn.Parameter(torch.ones((), device=rank.device))
    rows = model(inputs(rank, 0))
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    if puts_back:
        parts[rank.index] = rows
    loss = temperature * torch.cat(parts).square().mean()
    if rank.params["own"]:
        loss = loss + rows.mean()
    loss.backward()
    return model.weight.grad is not None


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """No gradient where the other arm has one."""
    return None if values == reference else "the weight has no gradient"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Of what is thrown away nothing needs to be shown."""
    return {} if subject.finding.fact("kind") == "gradient" and case.name == "gathered" else None
