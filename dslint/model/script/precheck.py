"""Cheap looks at the standard library's syntax tree: can a rule about collectives fire on this file at all?

They may say yes too often, never no wrongly for the patterns that the full analysis knows.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Set
from functools import lru_cache

from dslint.model.script.collective.vocabulary import (
    MAIN_DECORATORS,
    OTHER_DECORATORS,
)
from dslint.model.script.marked import FUNCTIONS, SHARDING, Function, Marked, Ranks, Waiting, defined, may_wait, name_of
from dslint.model.script.quick import Flat, call_name, flat

# Calls that deal out work, with their number of positional arguments (0: any).
_STRIDED = {"range": 3, "islice": 4, "split_between_processes": 0, "shard": 0, "split_dataset_by_node": 0}
_EXITS = frozenset({"exit", "_exit", "quit"})
_REPEATING = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@lru_cache(maxsize=4)
def has_guarded_collective(tree: ast.Module, imported: frozenset[str] = frozenset()) -> bool:
    """Some collective, or a function that holds one, may stand behind a rank test.

    ``imported``: names under which something of another file may be called that waits. Several rules ask the same.
    """
    waiting = Waiting(flat(tree), imported)
    return waiting.any() and _has_guarded(waiting)


def has_guarded_call(tree: ast.Module, names: Container[str]) -> bool:
    """Some call of one of these names may stand behind a rank test."""
    nodes = flat(tree)
    calls = Marked(nodes)
    calls.add(nodes.place(call) for call in nodes.nodes(ast.Call) if call_name(call) in names)
    return bool(calls.places) and _has_guarded(calls)


def may_skip_collective(tree: ast.Module) -> bool:
    """Some test decides, within its function, whether something runs that waits for other ranks.

    A plain ``loss.backward()`` waits where the file has a model that exchanges gradients.
    """
    nodes = flat(tree)
    backwards = [nodes.place(n) for n in nodes.nodes(ast.Call) if call_name(n) == "backward"]
    exchanges = bool(backwards) and _exchanges(nodes)

    def waits(call: ast.Call, name: str, holders: Set[str]) -> bool:
        return may_wait(call, name, holders) or (exchanges and name == "backward")

    waiting = Waiting(nodes, frozenset(), waits)
    if not waiting.any():
        return False
    leaving = Marked(nodes)
    leaving.add(nodes.place(n) for n in nodes.nodes(ast.Call) if call_name(n) in _EXITS)
    leaving.add(nodes.places(ast.Raise))
    leaving.add_callers()
    leaving.add(nodes.places(ast.Return, ast.Break, ast.Continue))
    return any(
        waiting.inside(at) or (leaving.inside(at) and waiting.around(at)) for at in nodes.places(ast.If, ast.While)
    )


def _exchanges(nodes: Flat) -> bool:
    """Something in the file is called like what makes a model that exchanges gradients."""
    makers = {"DistributedDataParallel", "prepare", "prepare_model", *SHARDING}
    if any(n.attr in makers for n in nodes.nodes(ast.Attribute)):
        return True
    return any(alias.name in makers for n in nodes.nodes(ast.ImportFrom) for alias in n.names)


def _has_guarded(marked: Marked) -> bool:
    """A marked call may stand behind a rank test."""
    nodes = marked.nodes
    ranks = Ranks(nodes)
    ranks.follow()
    for at in nodes.places(ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Match):
        node = nodes.order[at]
        test = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
        test = node.subject if isinstance(node, ast.Match) else test
        # What ends the process matters to those that call the function, too.
        if not (marked.inside(at) or (_ends_early(node) and (_may_exit(node) or marked.around(at)))):
            continue
        if ranks.inside(nodes.place(test)):
            return True
    wrapping = _wrapping(nodes, ranks)
    return any(
        marked.inside(at) and (_is_main_only(node) or any(name_of(d) in wrapping for d in node.decorator_list))
        for at in nodes.places(*FUNCTIONS)
        if isinstance(node := nodes.order[at], Function)
    )


def _wrapping(nodes: Flat, ranks: Ranks) -> set[str]:
    """Functions that hold a function with a rank test: decorators of the file that let some ranks in."""
    found = set()
    for at in nodes.places(*FUNCTIONS):
        inside = nodes.order[at + 1 : nodes.ends[at]]
        if ranks.inside(at) and any(isinstance(n, Function) for n in inside):
            found.add(defined(nodes.order[at]))
    return found


def _is_main_only(function: Function) -> bool:
    return any(name_of(decorator) in (MAIN_DECORATORS | OTHER_DECORATORS) for decorator in function.decorator_list)


_SPLITS = frozenset({"array_split", "chunk", "tensor_split"})


def has_strided_work(tree: ast.Module, imported: frozenset[str] = frozenset()) -> bool:
    """Some sequence is cut into one part a rank, and a loop waits for the others, or trains, in each turn."""
    nodes = flat(tree)
    waiting = Waiting(nodes, imported)
    waiting.add(nodes.place(call) for call in nodes.nodes(ast.Call) if call_name(call) == "backward")
    if not any(map(waiting.inside, nodes.places(*_REPEATING))):
        return False
    kinds = (ast.Slice, ast.Subscript, ast.Call)
    if any(_is_strided(node) for kind in kinds for node in nodes.nodes(kind)):
        return True
    if any(map(_is_rank_share, nodes.nodes(ast.BinOp))) or _steps_by_size(nodes):
        return True
    modulo = [n for n in nodes.nodes(ast.Compare) if any(map(_is_modulo, (n.left, *n.comparators)))]
    ranks = Ranks(nodes)
    if modulo:
        ranks.follow()
    return any(ranks.inside(nodes.place(node)) for node in modulo)


def _steps_by_size(nodes: Flat) -> bool:
    """``while i < n: ...; i += world_size``, whatever the step is called."""
    loops = nodes.places(ast.While)
    steps = (
        nodes.place(n) for n in nodes.nodes(ast.AugAssign) if isinstance(n.op, ast.Add) and not _is_number(n.value)
    )
    return any(loop < step < nodes.ends[loop] for step in steps for loop in loops)


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant)


def _is_strided(node: ast.AST) -> bool:
    if isinstance(node, ast.Slice):
        cuts = node.lower is not None and node.step is not None
        return cuts and not _is_number(node.lower) and not _is_number(node.step)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Call) and call_name(node.value) in _SPLITS and not _is_number(node.slice)
    if isinstance(node, ast.Call):
        if call_name(node) in _SPLITS:
            return not all(isinstance(a, ast.Constant) for a in node.args[-1:])
        wanted = _STRIDED.get(call_name(node))
        if call_name(node) == "range" and any(map(_is_number, (*node.args[:1], *node.args[2:]))):
            return False
        return wanted is not None and wanted in (0, len(node.args))
    return False


def _is_rank_share(node: ast.BinOp) -> bool:
    """``rank * share``: the beginning of a consecutive part."""
    sides = (name_of(node.left).lower(), name_of(node.right).lower())
    return isinstance(node.op, ast.Mult) and any(side.endswith("rank") for side in sides)


def _is_modulo(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _ends_early(node: ast.AST) -> bool:
    bodies = (node.body, node.orelse) if isinstance(node, ast.If) else ()
    return any(
        b and isinstance(b[-1], ast.Return | ast.Continue | ast.Break | ast.Expr | ast.Raise) and _exits(b[-1])
        for b in bodies
    )


def _may_exit(node: ast.AST) -> bool:
    """More than the function ends in an arm: ``sys.exit()``, ``raise SystemExit``."""
    bodies = (node.body, node.orelse) if isinstance(node, ast.If) else ()
    return any(isinstance(b[-1], ast.Expr | ast.Raise) for b in bodies if b)


def _exits(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and call_name(statement.value) in _EXITS
    return True
