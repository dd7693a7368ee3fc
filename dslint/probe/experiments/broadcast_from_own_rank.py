"""`broadcast(tensor, src=rank)`: every rank names itself as the source.

As written, all ranks send and none receives; as fixed, rank 0 is the source everywhere. Over gloo a rank waits for its
peers to take what it sends.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="broadcast-from-own-rank",
    summary="every rank broadcasts from itself, and nobody receives",
    rules=("DSL206",),
    expect=Expect((Kind.STALL,), r"broadcast \(distributed_c10d\.py"),
    cases=(Case("tensor", {"call": "broadcast"}), Case("objects", {"call": "broadcast_object_list"})),
)


def written(rank: RankApi) -> Json:
    """The source is this rank."""
    return _send(rank, rank.index)


def fixed(rank: RankApi) -> Json:
    """The source is rank 0."""
    return _send(rank, 0)


def _send(rank: RankApi, source: int) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    if rank.params["call"] == "broadcast":
        tensor = torch.full((4,), float(rank.index), device=rank.device)
        dist.broadcast(tensor, src=source)
        return tensor.tolist()
    objects = [{"rank": rank.index}]
    dist.broadcast_object_list(objects, src=source)
    return objects
