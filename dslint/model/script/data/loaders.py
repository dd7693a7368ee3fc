"""Samplers of a script that deal out the items of a loader, and what their data sets are."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.data.sources import Sources
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

DISTRIBUTED_SAMPLERS = frozenset(
    {"torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"}
)


class Loaders:
    """The samplers of one module."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._names = names
        self.sources = Sources(tree, names)

    def is_distributed_sampler(self, node: cst.CSTNode | None) -> bool:
        """A call of the ``DistributedSampler`` of torch."""
        return isinstance(node, cst.Call) and self._names.qualified(node.func) in DISTRIBUTED_SAMPLERS
