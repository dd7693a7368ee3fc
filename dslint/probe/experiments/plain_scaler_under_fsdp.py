"""A gradient overflows in the shard of one rank of FSDP, and the scaler is that of a model that no rank shares.

As written, `GradScaler` looks at the gradients of its own shard; as fixed, `ShardedGradScaler` asks all ranks. The rank
whose shard overflows leaves its step out; with the plain one, the others make theirs.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="plain-scaler-under-fsdp",
    summary="one rank leaves the step out, and the others make it: the shards of one model are of different steps",
    flavour="torch",
    rules=("DSL613",),
    expect=Expect((Kind.WRONG,), r"some ranks made the step and others did not"),
    cases=(Case("overflow", {}),),
)


def written(rank: RankApi) -> Json:
    """The scaler of one process."""
    return _stepped(rank, is_plain=True)


def fixed(rank: RankApi) -> Json:
    """The scaler of FSDP."""
    return _stepped(rank, is_plain=False)


def _stepped(rank: RankApi, is_plain: bool) -> Json:
    """Whether the shard of this rank has changed."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    rank.init()
    torch.manual_seed(0)
    model: Any = FullyShardedDataParallel(torch.nn.Linear(4, 4, bias=False), device_id=torch.device(rank.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kind = str(rank.device).partition(":")[0]
    scaler: Any = torch.amp.GradScaler(kind) if is_plain else ShardedGradScaler(device=kind)
    before = next(model.parameters()).detach().clone()
    scaler.scale(model(torch.ones(2, 4, device=rank.device)).mean()).backward()
    rank.mark("backward")
    if rank.index == 0:
        next(model.parameters()).grad[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    return {"stepped": bool((next(model.parameters()).detach() != before).any())}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Tell when some ranks made the step, where none did in the reference."""
    made = {value["stepped"] for value in values}
    if len(made) > 1 and len({value["stepped"] for value in reference}) == 1:
        return "some ranks made the step and others did not"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "overflow" and subject.finding.fact("scaler") == "plain" else None
