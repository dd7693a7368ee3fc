"""Calls on models that PyTorch shards: FSDP, ``fully_shard`` (FSDP2), and the functions that put their parts together.

Judged by counting the collectives of each call on two gloo ranks, torch 2.13. Of FSDP the forward, ``state_dict`` of
every type, ``load_state_dict``, ``summon_full_params``, ``clip_grad_norm_`` and the state of the optimizer talk to the
other ranks; with ``ShardingStrategy.NO_SHARD`` none of them does. Of FSDP2 the forward, ``full_tensor`` and
``torch.nn.utils.clip_grad_norm_`` do; ``state_dict``, ``load_state_dict``, the optimizer's step and ``state_dict_type``
do not. ``get_model_state_dict`` and its like gather with ``full_state_dict=True`` what is sharded, and nothing else.
"""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.collective.vocabulary import (
    FSDP_CLASS,
    FSDP_METHODS,
    FSDP_STATIC,
    STATE_DICT_FUNCTIONS,
    STATE_DICTS,
)
from dslint.model.script.dotted import is_true, keyword, last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objectkinds import SHARD_IN_PLACE
from dslint.model.script.objects.objects import Objects

_STATIC_OF = FSDP_CLASS.rpartition(".")[2]
SHARDED_STRATEGIES = frozenset({"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
_CLIP = frozenset({"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_"})
_FSDP_ROOTS = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
# What FSDP2 waits in, ``parameters`` where their norm is asked for; its ``state_dict`` holds the parts.
_SHARDS = re.compile(r"shard|fsdp|parallelize", re.I)
_FSDP2_METHODS = frozenset({"forward", "generate", "parameters"})


class ShardedCalls:
    """Recognises the calls of one module that unshard a model."""

    def __init__(self, names: Names, objects: Objects) -> None:
        self._names = names
        self._objects = objects

    def function(self, module: str, function: str, call: cst.Call) -> bool:
        """The imported function ``module.function`` talks to all ranks."""
        if f"{module}.{function}" in _CLIP:
            return self._clips_fsdp2(call)
        if function in FSDP_STATIC:
            return module.startswith("torch.distributed.fsdp.") and module.rpartition(".")[2] == _STATIC_OF
        return module == STATE_DICTS and function in STATE_DICT_FUNCTIONS and self._is_full(function, call)

    def method(self, called: cst.Attribute) -> bool:
        """The method of a sharded model talks to all ranks; ``full_tensor`` is one of DTensor alone."""
        method = called.attr.value
        if method == "full_tensor":
            return self._names.imported("torch")
        return method in FSDP_METHODS and self.is_sharded(called.value, method)

    def is_sharded(self, model: cst.BaseExpression, method: str = "forward") -> bool:
        """The model is certainly sharded by FSDP, or by FSDP2 when its ``method`` then waits too."""
        if self._objects.likely(model) != "fsdp":
            return False
        call = self._objects.taken(model) or self._objects.made(model)
        if call is None or any(a.star == "**" for a in call.args):
            return False
        if self._names.qualified(call.func) in SHARD_IN_PLACE:
            return method in _FSDP2_METHODS
        strategy = keyword(call, "sharding_strategy")
        return method != "parameters" and (strategy is None or last_name(strategy) in SHARDED_STRATEGIES)

    def _clips_fsdp2(self, call: cst.Call) -> bool:
        """``clip_grad_norm_(model.parameters(), ...)`` adds up the norms of the parts."""
        given = call.args[0].value if call.args and not call.args[0].star else None
        owner = given.func if isinstance(given, cst.Call) else None
        if not isinstance(owner, cst.Attribute) or owner.attr.value != "parameters":
            return False
        taken = self._objects.taken(owner.value) or self._objects.made(owner.value)
        return (
            self.is_sharded(owner.value) and taken is not None and self._names.qualified(taken.func) in SHARD_IN_PLACE
        )

    def _is_full(self, function: str, call: cst.Call) -> bool:
        options = keyword(call, "options")
        made = options if isinstance(options, cst.Call) else self._names.single_value(options) if options else None
        if not isinstance(made, cst.Call) or self._names.called(made) != "StateDictOptions":
            return False
        if function.startswith("set_") and is_true(made, "broadcast_from_rank0"):
            return True
        if not is_true(made, "full_state_dict") or not self._names.imported(*_FSDP_ROOTS):
            return False
        return function.startswith("set_") or not self._is_sharded_later(call)

    def _is_sharded_later(self, call: cst.Call) -> bool:
        """A later line of the function shards the model: up to there each rank has all of it, and nothing moves."""
        model = keyword(call, "model") or (call.args[0].value if call.args else None)
        if not isinstance(model, cst.Name) or self._objects.likely(model) == "fsdp":
            return False
        tree = self._names.tree
        scope = tree.function(call) or tree.module
        later = (n for n in tree.own_nodes(scope) if isinstance(n, cst.Call) and tree.position(n) > tree.position(call))
        return any(
            _SHARDS.search(last_name(n.func)) and any(last_name(a.value) == model.value for a in n.args) for n in later
        )
