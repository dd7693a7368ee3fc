"""What ZeRO stage 3 does to the models of one module, in one place: who is partitioned, where, and what gathers it."""

from __future__ import annotations

from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.tree import Tree
from dslint.model.script.zero.gathers import Gathers
from dslint.model.script.zero.hfloading import HfLoading
from dslint.model.script.zero.partitioned import Partitioned
from dslint.model.script.zero.zeroparams import ZeroParameters


class ZeroModels:
    """``gathers``: blocks that gather parameters, and in-place writes; ``loading``: calls that load transformers
    models, and those that tell transformers of DeepSpeed; ``models`` and ``parameters``: which are partitioned.
    """

    def __init__(self, tree: Tree, names: Names, objects: Objects) -> None:
        self.gathers = Gathers(tree, names)
        self.loading = HfLoading(tree, names, objects)
        self.models = Partitioned(tree, names, objects, self.loading)
        self.parameters = ZeroParameters(tree, names, self.models)
