"""Cheap looks at the standard library's syntax tree: can a rule about collectives fire on this file at all?

They may say yes too often, never no wrongly for the patterns that the full analysis knows.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator

from dslint.model.script.vocabulary import CHECKPOINT_FUNCTIONS, COLLECTIVE_NAMES, MAIN_DECORATORS, OTHER_DECORATORS

_RANKISH = re.compile(r"rank|main|master|should_save|process_zero|global_zero|process_index|procid|localid", re.I)
# How scripts call ``torch.distributed.checkpoint``.
_CHECKPOINT_MODULE = re.compile(r"dcp|_cp$|checkpoint")
_SIZEISH = re.compile(r"world|size|num_processes|n_?gpus?", re.I)
# Calls that deal out work, with their number of positional arguments (0: any).
_STRIDED = {"range": 3, "islice": 4, "split_between_processes": 0, "shard": 0, "split_dataset_by_node": 0}
_EXITS = ast.Return | ast.Continue | ast.Break | ast.Expr | ast.Raise
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def has_guarded_collective(tree: ast.Module) -> bool:
    """Some collective, or a function that holds one, may stand behind a rank test."""
    flat = _Flat(tree)
    if not flat.mark_waiting():
        return False
    aliases = _aliases(flat.order)
    for at, node in enumerate(flat.order):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.BoolOp):
            test = node if isinstance(node, ast.BoolOp) else node.test
            if (flat.waits(at) or _ends_early(node)) and _is_rankish(test, aliases):
                return True
        elif isinstance(node, ast.Match):
            if flat.waits(at) and _is_rankish(node.subject, aliases):
                return True
        elif isinstance(node, _Function) and _is_main_only(node) and flat.waits(at):
            return True
    return False


def _is_main_only(function: _Function) -> bool:
    return any(_name(decorator) in (MAIN_DECORATORS | OTHER_DECORATORS) for decorator in function.decorator_list)


class _Flat:
    """The nodes in an order in which the descendants of a node are a slice."""

    def __init__(self, tree: ast.Module) -> None:
        self.order: list[ast.AST] = []
        parents: list[int] = []
        stack: list[tuple[ast.AST, int]] = [(tree, -1)]
        pop, push = stack.pop, stack.append
        while stack:
            node, parent = pop()
            at = len(parents)
            self.order.append(node)
            parents.append(parent)
            for value in node.__dict__.values():
                if isinstance(value, ast.AST):
                    push((value, at))
                elif isinstance(value, list):
                    for item in value:
                        if isinstance(item, ast.AST):
                            push((item, at))
        self.ends = list(range(1, len(parents) + 1))
        for at in range(len(parents) - 1, 0, -1):
            above = parents[at]
            if self.ends[above] < self.ends[at]:
                self.ends[above] = self.ends[at]
        self._waiting: list[int] = []

    def mark_waiting(self) -> bool:
        """Count the calls that may wait for other ranks, directly or through functions of the file."""
        calls = [(at, n) for at, n in enumerate(self.order) if isinstance(n, ast.Call)]
        names = _engines(self.order) | _wrappers(self.order)
        self._waiting = [at for at, call in calls if _may_wait(call, names)]
        functions = [(at, n.name) for at, n in enumerate(self.order) if isinstance(n, _Function)]
        for _ in range(4):
            names |= {name for at, name in functions if name not in names and self.waits(at)}
            self._waiting = [at for at, call in calls if _may_wait(call, names)]
        return bool(self._waiting)

    def waits(self, at: int) -> bool:
        """A call of that kind stands inside a node."""
        found = bisect_left(self._waiting, at)
        return found < len(self._waiting) and self._waiting[found] < self.ends[at]


def has_strided_work(tree: ast.Module) -> bool:
    """Some sequence is cut into one part a rank."""
    return any(_is_strided(node) for node in _nodes(tree))


def _is_strided(node: ast.AST) -> bool:
    if isinstance(node, ast.Slice):
        return node.lower is not None and node.step is not None
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Call) and _called(node.value) in ("array_split", "chunk", "tensor_split")
    if isinstance(node, ast.Call):
        wanted = _STRIDED.get(_called(node))
        return wanted is not None and wanted in (0, len(node.args))
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        return any(isinstance(s, ast.BinOp) and isinstance(s.op, ast.Mod) for s in sides) and _is_rankish(node, set())
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _SIZEISH.search(_name(node.value)) is not None
    return False


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes; ``ast.walk`` would ask each for its fields by name."""
    stack: list[ast.AST] = [tree]
    pop, push, extend = stack.pop, stack.append, stack.extend
    while stack:
        node = pop()
        yield node
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                if not isinstance(value, ast.expr_context):
                    push(value)
            elif isinstance(value, list):
                extend([item for item in value if isinstance(item, ast.AST)])


def _called(call: ast.Call) -> str:
    return _name(call.func)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_rankish(test: ast.AST, aliases: set[str]) -> bool:
    for node in _nodes(test):
        if isinstance(node, ast.Name) and (node.id in aliases or _RANKISH.search(node.id)):
            return True
        if isinstance(node, ast.Attribute) and (node.attr in aliases or _RANKISH.search(node.attr)):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _RANKISH.search(node.value):
            return True
    return False


def _aliases(nodes: list[ast.AST]) -> set[str]:
    """Variables whose value, and functions whose body, speaks of ranks."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_rankish(node.value, found):
            found |= {_name(n) for t in node.targets for n in (t.elts if isinstance(t, ast.Tuple) else (t,))}
        elif isinstance(node, ast.Return) and node.value is not None and _is_rankish(node.value, found):
            # Which function returns it does not matter for a first look.
            found |= {f.name for f in nodes if isinstance(f, _Function) and node in f.body}
    return found - {""}


def _engines(nodes: list[ast.AST]) -> set[str]:
    """Names of engines, which may be called like functions."""
    found: set[str] = set()
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call | ast.Subscript):
            continue
        value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
        if isinstance(value, ast.Call) and _called(value) in ("initialize", "prepare"):
            target = node.targets[0]
            found |= {_name(n) for n in (target.elts if isinstance(target, ast.Tuple) else (target,))}
    return found | {"module"} if found - {""} else set()


def _wrappers(nodes: list[ast.AST]) -> set[str]:
    """Other names for what waits when it is called: ``from ... import DistributedDataParallel as DDP``."""
    imports = (a for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names)
    return {a.asname for a in imports if a.asname and a.name in COLLECTIVE_NAMES}


def _may_wait(call: ast.Call, others: set[str]) -> bool:
    """The call may be a collective, or one of ``others``; ``model.train()`` and ``loss.backward()`` are not."""
    name = _called(call)
    if name in others:
        return True
    receiver = _name(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
    if name not in COLLECTIVE_NAMES:
        return name in CHECKPOINT_FUNCTIONS and _CHECKPOINT_MODULE.search(receiver) is not None
    if name == "train":
        return "trainer" in receiver
    if name == "backward":
        return bool(call.args)
    return not (name == "step" and ("optim" in receiver or "sched" in receiver))


def _ends_early(node: ast.AST) -> bool:
    bodies = (node.body, node.orelse) if isinstance(node, ast.If) else ()
    return any(
        b and isinstance(b[-1], ast.Return | ast.Continue | ast.Break | ast.Expr | ast.Raise) and _exits(b[-1])
        for b in bodies
    )


def _exits(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and _called(statement.value) in ("exit", "_exit", "quit")
    return True
