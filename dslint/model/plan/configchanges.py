"""Whether a script changes the config, or its batch sizes, before DeepSpeed reads it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dslint.core.fact import Fact
from dslint.core.source import SourceFile
from dslint.model.plan.configarg import ConfigArgument
from dslint.model.plan.questions import ENGINE
from dslint.model.plan.scriptrun import ScriptRun
from dslint.python.source import Module, read

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def changes_config(source: SourceFile, run: ScriptRun, given: Sequence[ConfigArgument], consumer: Fact[str]) -> bool:
    """The script computes the config or writes into it, so that the file is not what runs."""
    if sets_sizes(source, consumer) or any(event.open for events in run.calls(ENGINE) for event in events):
        return True
    return any(argument.api == ENGINE and not argument.is_known for argument in given)


def sets_sizes(source: SourceFile, consumer: Fact[str]) -> bool:
    """The script may give the config another path or other batch sizes."""
    # ``args.train_batch_size = ...`` changes what a Trainer takes over; plain DeepSpeed reads the file.
    sizes = () if consumer.get_or("") == "deepspeed" else BATCH_KEYS
    changed = ("deepspeed_config", "deepspeed", *sizes)
    if not any(name in source.text for name in (*changed, *BATCH_KEYS)):
        return False
    module = read(source)
    if not isinstance(module, Module):
        return False
    nodes = list(module.nodes)
    if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and n.attr in changed for n in nodes):
        return True
    return _names_sizes(nodes)


def _names_sizes(nodes: Sequence[ast.AST]) -> bool:
    """A batch size is named elsewhere than in ``config["train_batch_size"]`` or ``config.get(...)`` that is read."""
    reads: set[int] = set()
    named: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            reads.add(id(node.slice))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            reads.add(id(node.args[0]))
        elif isinstance(node, ast.Constant) and node.value in BATCH_KEYS:
            named.add(id(node))
    return not named <= reads
