"""Process groups whose timeout is the question."""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import RankApi


def make_group(rank: RankApi, timeout: Any) -> None:
    """`init_process_group(timeout=timeout)` over the store of the arm; the value goes to torch as it is."""
    import torch.distributed as dist

    dist.init_process_group(rank.backend, store=rank.store(), rank=rank.index, world_size=rank.world, timeout=timeout)
    rank.mark("process group ready")


def timeout_of(rank: RankApi, group: Any = None) -> float:
    """The timeout in seconds that a group works with; default: the default group."""
    import torch
    import torch.distributed as dist

    backend: Any = (group or dist.group.WORLD)._get_backend(torch.device(rank.device))
    seconds: float = backend.options._timeout.total_seconds()
    return seconds
