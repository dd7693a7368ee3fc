"""DistributedDataParallel on a model of five weights, and data that every rank can make by itself."""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import RankApi


def make_ddp(rank: RankApi, model: Any = None, **arguments: Any) -> Any:
    """`DistributedDataParallel` of the model (default: a linear layer 4 -> 1, equal on all ranks); makes the group."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        rank.init()
    wrapped = (model or torch.nn.Linear(4, 1)).to(rank.device)
    return torch.nn.parallel.DistributedDataParallel(wrapped, **arguments)


def make_optimizer(model: Any) -> Any:
    """SGD with a learning rate of 0.1."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1)


def inputs(rank: RankApi, number: int) -> Any:
    """Batch ``number`` of this rank: [2, 4], other numbers on every rank."""
    import torch

    generator = torch.Generator().manual_seed(1000 * number + rank.index)
    return torch.randn(2, 4, generator=generator).to(rank.device)


def train_step(rank: RankApi, model: Any, optimizer: Any, number: int) -> None:
    """Forward, backward and step on batch ``number``; the loss pulls every output to 1."""
    optimizer.zero_grad()
    loss = (model(inputs(rank, number)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    rank.mark(f"step {number}")


def weights(model: Any) -> list[float]:
    """All parameters in one list."""
    return [float(value) for parameter in model.parameters() for value in parameter.detach().flatten()]
