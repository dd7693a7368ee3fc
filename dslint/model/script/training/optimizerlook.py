"""A first look at the cheap syntax tree: may an optimizer be made before its model is sharded?"""

from __future__ import annotations

import ast
import re

from dslint.model.script.quick import call_name, expression_name, flat

_SHARDING = frozenset({"FullyShardedDataParallel", "fully_shard"})
_GIVES = frozenset({"parameters", "named_parameters"})
_OPTIMIZER = re.compile(r"optim|^opt(?![a-z])|ada[mgdf]|sgd|prop$|lion|lamb(?!da)|bfgs|muon", re.I)


def may_make_optimizer_before_sharding(tree: ast.Module) -> bool:
    """In the function of a call that shards, something like an optimizer is made before, and parameters are taken."""
    nodes = flat(tree)
    if not any(call_name(call) in _GIVES for call in nodes.nodes(ast.Call)):
        return False
    names = _SHARDING | {a.asname for a in nodes.nodes(ast.alias) if a.asname and a.name in _SHARDING}
    shards = [call for call in nodes.nodes(ast.Call) if call_name(call) in names]
    if not shards:  # perhaps under another name, if the file has the function at all
        used = {n.id for n in nodes.nodes(ast.Name)} | {n.attr for n in nodes.nodes(ast.Attribute)}
        return any(a.name == "*" for a in nodes.nodes(ast.alias)) or not _SHARDING.isdisjoint(used)
    assigned: list[ast.Assign | ast.AnnAssign] = [*nodes.nodes(ast.Assign), *nodes.nodes(ast.AnnAssign)]
    made = [node for node in assigned if _may_be_optimizer(node)]
    pairs = ((shard, node) for shard in shards for node in made if node.lineno <= shard.lineno)
    return any(nodes.function(shard) is nodes.function(node) for shard, node in pairs)


def _may_be_optimizer(node: ast.Assign | ast.AnnAssign) -> bool:
    if not isinstance(node.value, ast.Call):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(map(_OPTIMIZER.search, (call_name(node.value), *map(expression_name, targets))))
