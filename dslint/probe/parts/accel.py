"""An Accelerator over all ranks of the default process group, and what the loaders that it prepares give a rank."""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import RankApi


def make_accelerator(rank: RankApi, **arguments: Any) -> Any:
    """`Accelerator(**arguments)`; makes the process group unless there is one.

    Raises:
        RuntimeError: the Accelerator does not see the ranks of the group, so that it would prove nothing.
    """
    import torch.distributed as dist
    from accelerate import Accelerator

    if not dist.is_initialized():
        rank.init()
    accelerator = Accelerator(cpu=not rank.device.startswith("cuda"), **arguments)
    if accelerator.num_processes != rank.world:
        raise RuntimeError(f"accelerate sees {accelerator.num_processes} processes, not {rank.world}")
    rank.mark("accelerator ready")
    return accelerator


def items_of(loader: Any) -> list[int]:
    """The items of a loader over numbers, in the order of its batches."""
    return [int(item) for batch in loader for item in batch]
