"""Pipelines of webdataset that put shards in an order of each process's own before the ranks share them out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event
from dslint.rules.runs import RunQuery

_SPLITS = ("webdataset.split_by_node", "webdataset.shardlists.split_by_node")
# `detshuffle` has one seed for all processes.
_SHUFFLES = ("webdataset.shuffle", "webdataset.filters.shuffle")
_FIXING = ("rng", "seed")


def own_pipelines(run: RunQuery) -> Iterator[tuple[Event, ast.Call, ast.expr]]:
    """Yield the pipelines that shuffle without a seed, with the shuffle and the stage that deals out the shards."""
    seen: set[ast.AST] = set()
    for found in run.happenings("pipes"):
        event = found.event
        if event.node in seen or not isinstance(event.node, ast.Call):
            continue
        seen.add(event.node)
        shuffle: ast.Call | None = None
        for stage in _stages(event.node):
            called = stage.func if isinstance(stage, ast.Call) else stage
            path = event.module.path_of(called)
            if path in _SPLITS and shuffle is not None:
                yield event, shuffle, stage
                break
            if path in _SHUFFLES and isinstance(stage, ast.Call) and _is_own(stage):
                shuffle = stage


def _stages(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the stages of a pipeline up to the first that cannot be read; a list stands for its items."""
    for argument in call.args:
        for stage in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
            if isinstance(stage, ast.Starred):
                return
            yield stage


def _is_own(shuffle: ast.Call) -> bool:
    """Return whether a shuffle gets neither a generator nor a seed."""
    return all(k.arg is not None and k.arg not in _FIXING for k in shuffle.keywords) and len(shuffle.args) < 3
