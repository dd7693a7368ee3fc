"""Batches that a loop takes apart into another number of names than the items of the data set have parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python import attributes
from dslint.python.events import Event, Loop, Node
from dslint.python.scopes import scope_of
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Instance
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

# What stands around a loader and gives its items, by the names that they have everywhere.
_SHOWS = frozenset({"tqdm", "islice", "iter", "cycle", "track", "list"})
_BASES = frozenset({"torch.utils.data.Dataset", "builtins.object", "typing.Generic", "abc.ABC"})


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A target that takes a batch apart, and `__getitem__` of the data set with the numbers of its parts."""

    loop: Loop
    target: ast.Tuple | ast.List
    around: tuple[Node, ...]
    is_script: bool
    method: ast.FunctionDef
    home: Module
    sizes: frozenset[int]


def unpacked_batches(run: RunQuery) -> Iterator[Unpacked]:
    """Yield the targets that do not fit what the items of the loader are, where the default collate is in use."""
    loaders = {found.event.node: found.event for found in run.happenings("makes-loader")}
    for loop, entry, around in run.loops() if loaders else ():
        made = {*loop.items, *(atom.node for atom in instances(loop.subject))} & loaders.keys()
        if len(made) != 1 or not isinstance(loop.node, ast.For) or any(_is_own(a) for a in instances(loop.subject)):
            continue
        items = _items(run, loaders[made.pop()])
        if items is None:
            continue
        home, method, sizes = items
        for target in _targets(loop.node):
            if not _fits(target, sizes):
                yield Unpacked(loop, target, around, entry.kind == "script", method, home, sizes)


def _is_own(atom: Instance) -> bool:
    return isinstance(atom.cls, ClassAtom)


def _fits(target: ast.Tuple | ast.List, sizes: frozenset[int]) -> bool:
    count = len(target.elts)
    if any(isinstance(element, ast.Starred) for element in target.elts):
        return any(size >= count - 1 for size in sizes)
    return count in sizes


def _items(run: RunQuery, loader: Event) -> tuple[Module, ast.FunctionDef, frozenset[int]] | None:
    """Return what gives the items of a loader, and of how many parts; `None` where they may be anything else."""
    collate = loader.arguments.get("collate_fn")
    if not loader.api.startswith("torch.utils.data.") or loader.open or loader.may:
        return None
    if collate is not None and collate.constants != (None,):
        return None
    given = loader.arguments.get("dataset")
    atom = given.single if given is not None else None
    maker = run.makers.get(atom) if isinstance(atom, Instance) and atom.cls == "torch.utils.data.Subset" else None
    if maker is not None and "dataset" in maker.arguments:
        atom = maker.arguments["dataset"].single
    if not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom):
        return None
    for base in attributes.lineage(run.machine, atom.cls):
        if isinstance(base, str):
            if base not in _BASES:
                return None
            continue
        defined = [n for n in base.node.body if isinstance(n, ast.FunctionDef)]
        names = {n.name for n in defined}
        if names & {"__getitems__", "__iter__"}:
            return None
        method = next((n for n in defined if n.name == "__getitem__"), None)
        if method is not None:
            sizes = _sizes(method)
            return (base.module, method, sizes) if sizes else None
    return None


def _sizes(method: ast.FunctionDef) -> frozenset[int]:
    """Return of how many parts a function returns tuples; empty where it may return anything else."""
    if method.decorator_list or scope_of(method).is_generator:
        return frozenset()
    sizes = set()
    for node in ast.walk(method):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and node is not method:
            return frozenset()
        if isinstance(node, ast.Return):
            value = node.value
            if not isinstance(value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in value.elts):
                return frozenset()
            sizes.add(len(value.elts))
    return frozenset(sizes)


def _targets(loop: ast.For) -> Iterator[ast.Tuple | ast.List]:
    """Yield the targets that take an item of the loader apart: in the head of a loop, or first thing in its body."""
    target: ast.expr = loop.target
    source = loop.iter
    while isinstance(source, ast.Call) and source.args:
        name = ast.unparse(source.func).rpartition(".")[2]
        if name == "enumerate":
            if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != 2:
                return
            target = target.elts[1]
        elif name not in _SHOWS:
            return
        source = source.args[0]
    if isinstance(source, ast.Call):
        return
    if isinstance(target, ast.Tuple | ast.List):
        yield target
    elif isinstance(target, ast.Name):
        yield from _from_name(loop, target.id)


def _from_name(loop: ast.For, name: str) -> Iterator[ast.Tuple | ast.List]:
    stores = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
    if len(stores) > 1:
        return
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name:
            yield from (target for target in node.targets if isinstance(target, ast.Tuple | ast.List))
