"""Cheap looks at the standard library's syntax tree: can a rule about collectives fire on this file at all?

They may say yes too often, never no wrongly for the patterns that the full analysis knows.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Set
from functools import lru_cache

from dslint.model.script.collective.frameworks import CALLED, MAKERS
from dslint.model.script.collective.vocabulary import (
    CHECKPOINT_FUNCTIONS,
    COLLECTIVE_NAMES,
    COMMON,
    MAIN_DECORATORS,
    OTHER_DECORATORS,
    SHARDED_METHODS,
)
from dslint.model.script.quick import Flat, call_name, expression_name, flat

_RANKISH = re.compile(r"rank|main|master|should_save|process_zero|global_zero|process_index|procid|localid", re.I)
# How scripts call ``torch.distributed.checkpoint``.
_CHECKPOINT_MODULE = re.compile(r"dcp|_cp$|checkpoint")
# What makes a model whose forward gathers its parameters.
_SHARDING = frozenset({"FullyShardedDataParallel", "fully_shard"})
_SIZEISH = re.compile(r"world|size|num_processes|n_?gpus?", re.I)
# Calls that deal out work, with their number of positional arguments (0: any).
_STRIDED = {"range": 3, "islice": 4, "split_between_processes": 0, "shard": 0, "split_dataset_by_node": 0}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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
    calls = _Marked(nodes)
    calls.add(nodes.place(call) for call in nodes.nodes(ast.Call) if call_name(call) in names)
    return bool(calls.places) and _has_guarded(calls)


def _has_guarded(marked: _Marked) -> bool:
    """A marked call may stand behind a rank test."""
    nodes = marked.nodes
    ranks = _Ranks(nodes)
    ranks.follow()
    for at in nodes.places(ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Match):
        node = nodes.order[at]
        test = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
        test = node.subject if isinstance(node, ast.Match) else test
        if (marked.inside(at) or _ends_early(node)) and ranks.inside(nodes.place(test)):
            return True
    wrapping = _wrapping(nodes, ranks)
    return any(
        marked.inside(at) and (_is_main_only(node) or any(_name(d) in wrapping for d in node.decorator_list))
        for at in nodes.places(*_FUNCTIONS)
        if isinstance(node := nodes.order[at], _Function)
    )


def _wrapping(nodes: Flat, ranks: _Ranks) -> set[str]:
    """Functions that hold a function with a rank test: decorators of the file that let some ranks in."""
    found = set()
    for at in nodes.places(*_FUNCTIONS):
        inside = nodes.order[at + 1 : nodes.ends[at]]
        if ranks.inside(at) and any(isinstance(n, _Function) for n in inside):
            found.add(_defined(nodes.order[at]))
    return found


def _is_main_only(function: _Function) -> bool:
    return any(_name(decorator) in (MAIN_DECORATORS | OTHER_DECORATORS) for decorator in function.decorator_list)


class _Marked:
    """Places in the order of the nodes of which a node may hold one."""

    def __init__(self, nodes: Flat) -> None:
        self.nodes = nodes
        self.places: list[int] = []

    def add(self, places: Iterable[int]) -> None:
        """Mark more nodes."""
        self.places = sorted({*self.places, *places})

    def inside(self, at: int) -> bool:
        """A marked node is, or stands inside, the node at a place."""
        found = bisect_left(self.places, at)
        return found < len(self.places) and self.places[found] < self.nodes.ends[at]


class _Ranks(_Marked):
    """Names and texts that speak of ranks."""

    def __init__(self, nodes: Flat) -> None:
        super().__init__(nodes)
        self._named: dict[str, list[int]] = {}
        texts: dict[str, list[int]] = {}
        for at in nodes.places(ast.Name, ast.Attribute, ast.Constant):
            node = nodes.order[at]
            if not isinstance(node, ast.Constant):
                self._named.setdefault(_name(node), []).append(at)
            elif isinstance(node.value, str):
                texts.setdefault(node.value, []).append(at)
        for group in (self._named, texts):
            self.add(at for word, places in group.items() if _RANKISH.search(word) for at in places)

    def follow(self) -> None:
        """Mark also the variables whose value, and the functions whose body, speaks of ranks, and so on."""
        nodes = self.nodes
        # Which function returns it does not matter for a first look.
        returned = {
            statement: function.name
            for at in nodes.places(*_FUNCTIONS)
            if isinstance(function := nodes.order[at], _Function)
            for statement in function.body
            if isinstance(statement, ast.Return)
        }
        pending = [(nodes.place(n.value), _targets(n)) for n in nodes.nodes(ast.Assign)]
        pending += [(nodes.place(n.value), {name}) for n, name in returned.items() if n.value is not None]
        while True:
            told = [names for at, names in pending if self.inside(at)]
            pending = [(at, names) for at, names in pending if not self.inside(at)]
            fresh = {name for names in told for name in names if name in self._named}
            if not fresh:
                return
            self.add(at for name in fresh for at in self._named.pop(name))


def _targets(node: ast.Assign) -> set[str]:
    return {_name(n) for t in node.targets for n in (t.elts if isinstance(t, ast.Tuple) else (t,))} - {""}


class Waiting(_Marked):
    """Calls that may wait for other ranks: by ``waits``, by an ``imported`` name, or through functions of the file."""

    def __init__(
        self,
        nodes: Flat,
        imported: Set[str] = frozenset(),
        waits: Callable[[ast.Call, str, Set[str]], bool] | None = None,
    ) -> None:
        super().__init__(nodes)
        self._calls: dict[str, list[int]] = {}
        waits = waits or may_wait
        direct = []
        holders = CALLED | _holders(nodes)
        for at in nodes.places(ast.Call):
            call = nodes.order[at]
            if isinstance(call, ast.Call):
                name = call_name(call)
                self._calls.setdefault(name, []).append(at)
                if waits(call, name, holders):
                    direct.append(at)
        self.add(direct)
        self._call_by_name(_engines(nodes) | _wrappers(nodes) | _made(nodes, _SHARDING) | imported)
        functions = {(at, _defined(nodes.order[at])) for at in nodes.places(*_FUNCTIONS)}
        while self.any() and (waiting := {f for f in functions if self.inside(f[0])}):
            functions -= waiting
            self._call_by_name({name for _, name in waiting})

    def any(self) -> bool:
        """There is such a call."""
        return bool(self.places)

    def _call_by_name(self, names: set[str]) -> None:
        self.add(at for name in names for at in self._calls.pop(name, ()))


def _defined(function: ast.AST) -> str:
    return function.name if isinstance(function, _Function) else ""


_SPLITS = frozenset({"array_split", "chunk", "tensor_split"})


def has_strided_work(tree: ast.Module, imported: frozenset[str] = frozenset()) -> bool:
    """Some sequence is cut into one part a rank, and something waits for the others or trains."""
    nodes = flat(tree)
    trains = any(call_name(call) == "backward" for call in nodes.nodes(ast.Call))
    if not trains and not Waiting(nodes, imported).any():
        return False
    kinds = (ast.Slice, ast.Subscript, ast.Call, ast.AugAssign)
    if any(_is_strided(node) for kind in kinds for node in nodes.nodes(kind)):
        return True
    if any(map(_is_rank_share, nodes.nodes(ast.BinOp))):
        return True
    modulo = [n for n in nodes.nodes(ast.Compare) if any(map(_is_modulo, (n.left, *n.comparators)))]
    ranks = _Ranks(nodes) if modulo else None
    return ranks is not None and any(ranks.inside(nodes.place(node)) for node in modulo)


def _is_strided(node: ast.AST) -> bool:
    if isinstance(node, ast.Slice):
        return node.lower is not None and node.step is not None
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Call) and call_name(node.value) in _SPLITS
    if isinstance(node, ast.Call):
        if call_name(node) in _SPLITS:
            return not all(isinstance(a, ast.Constant) for a in node.args[-1:])
        wanted = _STRIDED.get(call_name(node))
        return wanted is not None and wanted in (0, len(node.args))
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _SIZEISH.search(_name(node.value)) is not None
    return False


def _is_rank_share(node: ast.BinOp) -> bool:
    """``rank * share``: the beginning of a consecutive part."""
    sides = (_name(node.left).lower(), _name(node.right).lower())
    return isinstance(node.op, ast.Mult) and any(side.endswith("rank") for side in sides)


def _is_modulo(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _name(node: ast.AST) -> str:
    return expression_name(node) if isinstance(node, ast.expr) else ""


def _engines(nodes: Flat) -> set[str]:
    """Names of engines, which may be called like functions."""
    found: set[str] = set()
    for node in nodes.nodes(ast.Assign):
        value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
        if isinstance(value, ast.Call) and call_name(value) in ("initialize", "prepare"):
            target = node.targets[0]
            found |= {_name(n) for n in (target.elts if isinstance(target, ast.Tuple) else (target,))}
    return found | {"module"} if found - {""} else set()


def _wrappers(nodes: Flat) -> set[str]:
    """Other names for what waits when it is called: ``from ... import DistributedDataParallel as DDP``."""
    imports = (a for n in nodes.nodes(ast.ImportFrom) for a in n.names)
    return {a.asname for a in imports if a.asname and a.name in COLLECTIVE_NAMES}


def _holders(nodes: Flat) -> set[str]:
    """Names of what frameworks make, under the names that the file has for their classes."""
    return {name.lower() for name in _made(nodes, MAKERS | _SHARDING) | MAKERS}


def _made(nodes: Flat, makers: Set[str]) -> set[str]:
    """Names that are assigned what a maker returns, under whatever name it is imported, or that one takes."""
    imports = (a for n in nodes.nodes(ast.ImportFrom) for a in n.names)
    names = makers | {a.asname for a in imports if a.asname and a.name in makers}
    made = (n for n in nodes.nodes(ast.Assign) if isinstance(n.value, ast.Call) and call_name(n.value) in names)
    taken = (n.args[0] for n in nodes.nodes(ast.Call) if n.args and call_name(n) == "fully_shard")
    return {name for node in made for name in _targets(node)} | {_name(n) for n in taken}


def may_wait(call: ast.Call, name: str, holders: Set[str]) -> bool:
    """The call may be a collective; ``model.train()`` and ``loss.backward()`` are not."""
    receiver = _name(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
    if name == "prepare":
        return "accel" in receiver
    if name in ("log", "log_dict"):
        return any(k.arg == "sync_dist" for k in call.keywords)
    if name in COMMON | SHARDED_METHODS and (receiver in holders or name in ("full_tensor", "clip_grad_norm_")):
        return True
    if name not in COLLECTIVE_NAMES:
        return name in CHECKPOINT_FUNCTIONS and _CHECKPOINT_MODULE.search(receiver) is not None
    if name == "train":
        return "trainer" in receiver or receiver in holders
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
        return isinstance(statement.value, ast.Call) and call_name(statement.value) in ("exit", "_exit", "quit")
    return True
