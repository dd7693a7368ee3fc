"""A small model that FSDP shards, by its wrapper or in place."""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import RankApi


def make_layers(rank: RankApi, outputs: int = 1) -> Any:
    """Two linear layers, 4 -> 8 -> ``outputs``, equal on all ranks, on the device of the rank; makes the group."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        rank.init()
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, outputs)).to(rank.device)


def sharded(rank: RankApi, model: Any, strategy: str, **arguments: Any) -> Any:
    """`FullyShardedDataParallel` of the model, by the name of a strategy; without one `fully_shard`, in place."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

    device = torch.device(rank.device)
    if not strategy:
        mesh = torch.distributed.init_device_mesh(device.type, (torch.distributed.get_world_size(),))
        fully_shard(model, mesh=mesh)
        return model
    return FullyShardedDataParallel(model, device_id=device, sharding_strategy=ShardingStrategy[strategy], **arguments)
