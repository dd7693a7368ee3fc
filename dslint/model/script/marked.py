"""Places of the cheap syntax tree that matter to several first looks: ranks, and calls that wait for other ranks."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache

from dslint.model.script.collective.frameworks import CALLED, MAKERS
from dslint.model.script.collective.vocabulary import (
    CHECKPOINT_FUNCTIONS,
    COLLECTIVE_NAMES,
    COMMON,
    SHARDED_METHODS,
)
from dslint.model.script.quick import Flat, call_name, expression_name
from dslint.model.script.ranks.rankwords import ASKING_TEXTS, WORLD_TEXTS, asks, counts

# How scripts call ``torch.distributed.checkpoint``.
_CHECKPOINT_MODULE = re.compile(r"dcp|_cp$|checkpoint")
# What makes a model whose forward gathers its parameters.
SHARDING = frozenset({"FullyShardedDataParallel", "fully_shard"})
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


_MAY_WAIT = COLLECTIVE_NAMES | COMMON | SHARDED_METHODS | CHECKPOINT_FUNCTIONS | {"prepare", "log", "log_dict"}


class Marked:
    """Places in the order of the nodes of which a node may hold one."""

    def __init__(self, nodes: Flat) -> None:
        self.nodes = nodes
        self.places: list[int] = []
        self._functions: list[int] | None = None

    def add(self, places: Iterable[int]) -> None:
        """Mark more nodes."""
        self.places = sorted({*self.places, *places})

    def inside(self, at: int) -> bool:
        """A marked node is, or stands inside, the node at a place."""
        return holds(self.places, at, self.nodes.ends[at])

    def add_callers(self) -> None:
        """Mark the calls of functions that hold a marked node, and of functions that hold those."""
        calls: dict[str, list[int]] = {}
        for at, call in zip(self.nodes.places(ast.Call), self.nodes.nodes(ast.Call), strict=True):
            calls.setdefault(call_name(call), []).append(at)
        functions = {(at, defined(self.nodes.order[at])) for at in self.nodes.places(*FUNCTIONS)}
        while fresh := {f for f in functions if self.inside(f[0])}:
            functions -= fresh
            self.add(at for _, name in fresh for at in calls.pop(name, ()))

    def around(self, at: int) -> bool:
        """A marked node stands in the innermost function (or in the module) around a place."""
        if self._functions is None:
            self._functions = self.nodes.places(*FUNCTIONS)
        ends = self.nodes.ends
        return self.inside(next((f for f in reversed(self._functions) if f < at < ends[f]), 0))


class Told(Marked):
    """Names and texts that speak of something, by ``speaks`` of a name and by ``texts``."""

    def __init__(self, nodes: Flat, speaks: Callable[[str], bool], texts: Set[str]) -> None:
        super().__init__(nodes)
        self._named: dict[str, list[int]] = {}
        written: dict[str, list[int]] = {}
        for at, name in zip(nodes.places(ast.Name), nodes.nodes(ast.Name), strict=True):
            self._named.setdefault(name.id, []).append(at)
        for at, owned in zip(nodes.places(ast.Attribute), nodes.nodes(ast.Attribute), strict=True):
            self._named.setdefault(owned.attr, []).append(at)
        for at, text in zip(nodes.places(ast.Constant), nodes.nodes(ast.Constant), strict=True):
            if type(text.value) is str:
                written.setdefault(text.value, []).append(at)
        self.add(at for word, places in self._named.items() if speaks(word) for at in places)
        self.add(at for word, places in written.items() if word in texts or speaks(word) for at in places)

    def follow(self) -> None:
        """Mark also the variables that hold what is marked, the functions that return it, and so on."""
        nodes = self.nodes
        # Which function returns it does not matter for a first look.
        given: list[tuple[ast.expr, set[str]]] = [
            (statement.value, {function.name})
            for at in nodes.places(*FUNCTIONS)
            if isinstance(function := nodes.order[at], Function)
            for statement in function.body
            if isinstance(statement, ast.Return) and statement.value is not None
        ]
        given += [(n.value, _targets(n)) for n in nodes.nodes(ast.Assign)]
        given += [(n.value, {name_of(n.target)}) for n in nodes.nodes(ast.AnnAssign) if n.value is not None]
        given += [(n.value, {name_of(n.target)}) for n in nodes.nodes(ast.NamedExpr)]
        given += [(n.test, _flags(n)) for n in nodes.nodes(ast.If)]
        pending = [([nodes.place(part) for part in _handed_on(value)], names) for value, names in given]
        while True:
            told = [names for places, names in pending if any(map(self.inside, places))]
            pending = [(places, names) for places, names in pending if not any(map(self.inside, places))]
            fresh = {name for names in told for name in names if name in self._named}
            if not fresh:
                return
            self.add(at for name in fresh for at in self._named.pop(name))


class Ranks(Told):
    """Names and texts that speak of ranks."""

    def __init__(self, nodes: Flat) -> None:
        super().__init__(nodes, asks, ASKING_TEXTS)


@lru_cache(maxsize=1)
def ranks_of(nodes: Flat) -> Ranks:
    """The ranks of a module, also by the names of variables; the prechecks of several rules share them."""
    ranks = Ranks(nodes)
    ranks.follow()
    return ranks


class Worlds(Told):
    """Names and texts that speak of the number of processes."""

    def __init__(self, nodes: Flat) -> None:
        super().__init__(nodes, counts, WORLD_TEXTS)


# Calls that return their argument, as a rank or a test of one.
_CONVERTING = frozenset({"int", "str", "bool", "getattr", "get", "getenv"})


def _handed_on(value: ast.expr) -> Iterator[ast.expr]:
    """The parts of an expression that may be its value: ``Runner(rank)`` is no rank, ``get_rank()`` is."""
    if isinstance(value, ast.Call):
        yield value if call_name(value) in _CONVERTING else value.func
    elif isinstance(value, ast.Tuple | ast.List):
        for element in value.elts:
            yield from _handed_on(element)
    elif isinstance(value, ast.IfExp):
        yield from _handed_on(value.body)
        yield from _handed_on(value.orelse)
        if isinstance(value.body, ast.Constant):  # ``True if rank == 0 else False``
            yield value.test
    elif isinstance(value, ast.BoolOp):
        for side in value.values:
            yield from _handed_on(side)
    else:
        yield value


def _flags(node: ast.If) -> set[str]:
    """``if rank == 0: leads = True``."""
    assigned = (s for s in node.body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant))
    return {name for s in assigned if s.value.value in (True, False) for name in _targets(s)}  # type: ignore[attr-defined]


def _targets(node: ast.Assign) -> set[str]:
    return {name_of(n) for t in node.targets for n in (t.elts if isinstance(t, ast.Tuple) else (t,))} - {""}


class Calls:
    """The calls of a module by name, and which of them wait for other ranks: what is left when the tree is dropped.

    ``waits`` says which calls do by themselves.
    """

    def __init__(self, nodes: Flat, waits: Callable[[ast.Call, str, Set[str]], bool] | None = None) -> None:
        waits = waits or may_wait
        holders = CALLED | _holders(nodes)
        wraps = exchanges(nodes)
        self._by_name: dict[str, list[int]] = {}
        self._direct: list[int] = []
        for at, call in zip(nodes.places(ast.Call), nodes.nodes(ast.Call), strict=True):
            name = call_name(call)
            self._by_name.setdefault(name, []).append(at)
            if type(call.func) is ast.Name and call.func.id != name:  # as the file calls it
                self._by_name.setdefault(call.func.id, []).append(at)
            if waits(call, name, holders) or (name == "backward" and wraps):
                self._direct.append(at)
        self._names = frozenset(_engines(nodes) | _wrappers(nodes) | _made(nodes, SHARDING))
        self._instances = _made(nodes, {n.name for n in nodes.nodes(ast.ClassDef)})
        self._functions = {(at, nodes.ends[at], defined(nodes.order[at])) for at in nodes.places(*FUNCTIONS)}

    def waiting(self, imported: Set[str] = frozenset()) -> list[int]:
        """The places of those that wait, also by an ``imported`` name, or through functions of the file."""
        left = dict(self._by_name)
        names = self._names | imported
        places = sorted({*self._direct, *(at for name in names for at in left.pop(name, ()))})
        functions = set(self._functions)
        while places and (fresh := {f for f in functions if holds(places, f[0], f[1])}):
            functions -= fresh
            called = {name for _, _, name in fresh}
            called |= self._instances if "__call__" in called else set()
            places = sorted({*places, *(at for name in called for at in left.pop(name, ()))})
        return places


def holds(places: Sequence[int], start: int, end: int) -> bool:
    """One of the places, which are in order, lies in a range."""
    found = bisect_left(places, start)
    return found < len(places) and places[found] < end


class Waiting(Marked):
    """Calls that may wait for other ranks: by themselves, by an ``imported`` name, or through functions of the file."""

    def __init__(self, nodes: Flat, imported: Set[str] = frozenset(), calls: Calls | None = None) -> None:
        super().__init__(nodes)
        self.places = (calls or _calls(nodes)).waiting(imported)

    def any(self) -> bool:
        """There is such a call."""
        return bool(self.places)


@lru_cache(maxsize=1)
def _calls(nodes: Flat) -> Calls:
    """The prechecks of several rules on one file ask for the same, with and without what is imported."""
    return Calls(nodes)


def defined(function: ast.AST) -> str:
    """The name of a function."""
    return function.name if isinstance(function, Function) else ""


def name_of(node: ast.AST) -> str:
    """The last part of what an expression names; empty for other nodes."""
    return expression_name(node) if isinstance(node, ast.expr) else ""


def _engines(nodes: Flat) -> set[str]:
    """Names of engines, which may be called like functions."""
    found: set[str] = set()
    for node in nodes.nodes(ast.Assign):
        value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
        if isinstance(value, ast.Call) and call_name(value) in ("initialize", "prepare"):
            target = node.targets[0]
            found |= {name_of(n) for n in (target.elts if isinstance(target, ast.Tuple) else (target,))}
    return found | {"module"} if found - {""} else set()


def _wrappers(nodes: Flat) -> set[str]:
    """Other names for what waits when it is called: ``from ... import DistributedDataParallel as DDP``."""
    imports = (a for n in nodes.nodes(ast.ImportFrom) for a in n.names)
    return {a.asname for a in imports if a.asname and a.name in COLLECTIVE_NAMES}


def exchanges(nodes: Flat, others: Set[str] = frozenset()) -> bool:
    """The file names a wrapper whose backward exchanges gradients, or one of ``others`` that may make one."""
    makers = {"DistributedDataParallel", *SHARDING, *others}
    if any(n.attr in makers for n in nodes.nodes(ast.Attribute)):
        return True
    return any(alias.name in makers for n in nodes.nodes(ast.ImportFrom) for alias in n.names)


def _holders(nodes: Flat) -> set[str]:
    """Names of what frameworks make, under the names that the file has for their classes."""
    return {name.lower() for name in _made(nodes, MAKERS | SHARDING) | MAKERS}


def _made(nodes: Flat, makers: Set[str]) -> set[str]:
    """Names that are assigned what a maker returns, under whatever name it is imported, or that one takes."""
    imports = (a for n in nodes.nodes(ast.ImportFrom) for a in n.names)
    names = makers | {a.asname for a in imports if a.asname and a.name in makers}
    made = (n for n in nodes.nodes(ast.Assign) if isinstance(n.value, ast.Call) and call_name(n.value) in names)
    taken = (n.args[0] for n in nodes.nodes(ast.Call) if n.args and call_name(n) == "fully_shard")
    return {name for node in made for name in _targets(node)} | {name_of(n) for n in taken}


def may_wait(call: ast.Call, name: str, holders: Set[str]) -> bool:
    """The call may be a collective by itself; ``model.train()`` and ``loss.backward()`` are not."""
    if name not in _MAY_WAIT:
        return False
    receiver = name_of(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
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
