"""Data loaders of a script: how they are made, and which sampler deals out their items."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.data.labels import items_of
from dslint.model.script.data.sources import Sources
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

LOADERS = frozenset(
    {
        *("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"),
        *("torchdata.stateful_dataloader.StatefulDataLoader",),
    }
)
DISTRIBUTED_SAMPLERS = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)
# Positions of ``DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, ...)``.
_POSITIONS = {"dataset": 0, "batch_size": 1, "shuffle": 2, "sampler": 3, "batch_sampler": 4, "num_workers": 5}
_POSITIONS |= {"collate_fn": 6, "pin_memory": 7, "drop_last": 8, "timeout": 9, "worker_init_fn": 10}


class Loaders:
    """The loaders of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self.sources = Sources(tree, names)

    def is_loader(self, node: cst.CSTNode | None) -> bool:
        """A call of ``DataLoader``."""
        return isinstance(node, cst.Call) and self._names.qualified(node.func) in LOADERS

    def calls(self) -> list[cst.Call]:
        """Every ``DataLoader(...)``, in source order."""
        return [n for n in self._tree.every(cst.Call) if self.is_loader(n)]

    def argument(self, call: cst.Call, name: str) -> cst.BaseExpression | None:
        """What a ``DataLoader`` gets under a name or at its position."""
        for index, arg in enumerate(call.args):
            if arg.star == "*":
                return None
            if arg.star:
                items = items_of(arg.value, self._names)
                if items is None or name in items:
                    return items[name] if items is not None else None
                continue
            if arg.keyword.value == name if arg.keyword is not None else index == _POSITIONS[name]:
                return arg.value
        return None

    def is_distributed_sampler(self, node: cst.CSTNode | None) -> bool:
        """A call of the ``DistributedSampler`` of torch."""
        return isinstance(node, cst.Call) and self._names.qualified(node.func) in DISTRIBUTED_SAMPLERS
