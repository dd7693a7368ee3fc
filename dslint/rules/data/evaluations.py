"""Loops that evaluate a model over a loader that no sampler divides, and what the ranks reduce afterwards."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Call, Event, Loop, walk
from dslint.python.values import Instance, Value
from dslint.python.varies import DATA, HOST, LOST, RANDOM, RANKED
from dslint.rules.data.passes import goes_over_models
from dslint.rules.data.trainingloaders import PARALLEL
from dslint.rules.data.undivided import ITERABLE, asks_for_rank, is_blind
from dslint.rules.ranks.everyrank import every_rank_comes
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

_LOADER = "torch.utils.data.DataLoader"
_IN_ORDER = "torch.utils.data.SequentialSampler"
_JOINS = re.compile(r"reduce|gather")
_TRAINS = frozenset({"backward", "engine-backward", "optimizer-step"})
# How many functions around a call may hand on what it gets.
_MAX_CALLERS = 2


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A loader of which every rank evaluates all, the loop, and the call that puts the equal results together."""

    loader: Happening
    loop: Loop
    joined: Event


def whole_evaluations(run: RunQuery) -> Iterator[Evaluation]:
    """Yield each loader whose items every rank evaluates, where the ranks put together what comes out."""
    loaders = _whole_loaders(run)
    told: set[ast.AST] = set()
    for found in run.occurrences("collective") if loaders else ():
        event = found.event
        if event.lanes != run.machine.worlds.full or not _JOINS.search(event.api.rpartition(".")[2]):
            continue
        if any(varies & (RANKED | LOST) for varies, _, _ in event.snapshot.values()):
            continue
        for loop in _loops_behind(found):
            made = {*loop.items, *(atom.node for atom in instances(loop.subject))} & loaders.keys()
            if made and not made & told:
                told |= made
                yield Evaluation(loaders[next(iter(made))], loop, event)


def repeated_evaluations(run: RunQuery) -> Iterator[tuple[Happening, Loop]]:
    """Yield each loader whose items every rank evaluates, whatever becomes of the results, with the loop."""
    loaders = _whole_loaders(run)
    told: set[ast.AST] = set()
    for event, around in (pair for order in run.ordered for pair in order) if loaders else ():
        if "forward" not in event.tags or not every_rank_comes(run, event, around, run.machine.worlds.full):
            continue
        for loop in (node for node in around if isinstance(node, Loop)):
            made = loop.items or {atom.node for atom in instances(loop.subject)}
            if (
                made
                and made <= loaders.keys()
                and not made & told
                and _evaluates(loop)
                and not asks_for_rank(loop.node)
            ):
                told |= made
                yield from ((loaders[node], loop) for node in made)


def shared_evaluations(run: RunQuery, loaders: dict[ast.AST, Happening]) -> Iterator[Evaluation]:
    """Yield each of some loaders whose shares the ranks evaluate, with the call that joins what they count."""
    told: set[ast.AST] = set()
    for found in run.occurrences("collective") if loaders else ():
        event = found.event
        if event.lanes != run.machine.worlds.full or event.may or not _JOINS.search(event.api.rpartition(".")[2]):
            continue
        for loop in _loops_behind(found):
            made = {*loop.items, *(atom.node for atom in instances(loop.subject))}
            if made and made <= loaders.keys() and not made & told:
                told |= made
                yield Evaluation(loaders[next(iter(made))], loop, event)


def whole_lists(run: RunQuery) -> Iterator[tuple[Loop, Event]]:
    """Yield each loop in which every rank runs a model over all of a list, with the gather of what came out."""
    told: set[ast.AST] = set()
    loaders = {found.event.node for found in run.occurrences("makes-loader")}
    for found in run.occurrences("collective"):
        event = found.event
        name = event.api.rpartition(".")[2]
        # What drops the padding of a loader is for loaders that are divided.
        if event.lanes != run.machine.worlds.full or "gather" not in name or "metrics" in name or event.may:
            continue
        for loop in _loops_behind(found):
            if loop.node not in told and not loop.items & loaders and _goes_through_all(run, loop):
                told.add(loop.node)
                yield loop, event


def _goes_through_all(run: RunQuery, loop: Loop) -> bool:
    """Return whether a loop runs over the same list on all ranks, and each of them runs the model in every turn."""
    subject = loop.subject
    if not isinstance(loop.node, ast.For) or subject is None or loop.module.search(PARALLEL):
        return False
    own = DATA | RANKED | HOST | RANDOM | LOST
    if (loop.varies | subject.varies | run.machine.shape(subject)) & own or run.machine.deep_varies(subject) & own:
        return False
    text = ast.unparse(loop.node.iter)
    if "load" in text or ("len(" not in text if loop.counts else not _is_list(loop, subject)):
        return False
    forwards = [node for node in walk(loop.body) if isinstance(node, Event) and "forward" in node.tags]
    if any(goes_over_models(loop, event) for event in forwards):
        return False  # several models, and each rank may have a batch of its own
    return all(e.lanes == run.machine.worlds.full and not e.varies & RANKED and _is_alike(e) for e in forwards)


def _is_list(loop: Loop, subject: Value) -> bool:
    """Return whether a loop certainly goes through the items of a list, perhaps counted or shown as a bar."""
    found = instances(subject)
    return bool(found) and len(found) == len(subject.atoms) and bool(loop.items)


def _is_alike(event: Event) -> bool:
    """Return whether no argument of a call has to do with the rank."""
    return not any((varies | shape) & (DATA | RANKED | LOST) for varies, shape, _ in event.snapshot.values())


def _loops_behind(found: Happening) -> Iterator[Loop]:
    """Yield the evaluating loops from which an argument of a call comes, also in what calls the function around it."""
    pieces: list[ast.AST] = [node for node in found.event.nodes.values() if not isinstance(node, ast.Constant)]
    calls = found.calls
    for at in range(len(calls), max(-1, len(calls) - 1 - _MAX_CALLERS), -1):
        body = calls[at - 1].body if at else found.entry.tree
        scope = getattr(calls[at - 1].function, "node", None) if at else found.entry.node
        if scope is None:
            return
        names, made = _behind(scope, pieces)
        inside = {id(node) for node in ast.walk(scope)}
        for node in walk(body):
            is_reached = isinstance(node, Call) and id(node.node) in made
            for loop in walk(node) if is_reached else (node,):
                is_here = isinstance(loop, Loop) and id(loop.node) in inside and bool(names & _changed(loop.node))
                if isinstance(loop, Loop) and (is_reached or is_here) and _evaluates(loop):
                    yield loop
        if not at or not names & _parameters(scope):
            return
        call = calls[at - 1].node
        pieces = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []


def _behind(scope: ast.AST, pieces: list[ast.AST]) -> tuple[set[str], set[int]]:
    """Return the names of a function that some expressions are computed from, and the calls in them."""
    names: set[str] = set()
    made: set[int] = set()
    assigned = [n for n in ast.walk(scope) if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign) and n.value]
    listed = [n for n in ast.walk(scope) if isinstance(n, ast.For) and isinstance(n.iter, ast.Tuple | ast.List)]
    pending = list(pieces)
    while pending:
        piece = pending.pop()
        made |= {id(n) for n in ast.walk(piece) if isinstance(n, ast.Call)}
        fresh = {n.id for n in ast.walk(piece) if isinstance(n, ast.Name)} - names
        names |= fresh
        pending += [n.value for n in assigned if n.value is not None and fresh & _stored(n)]
        pending += [n.iter for n in listed if fresh & _stored(n)]
    return names, made


def _stored(node: ast.AST) -> set[str]:
    """Return the variables that an assignment or a loop sets, also a part of them."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {n.id for target in targets if target is not None for n in ast.walk(target) if isinstance(n, ast.Name)}


def _changed(loop: ast.AST) -> set[str]:
    """Return the variables that a loop changes: by an assignment, or by a method that stands alone."""
    found: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            found |= _stored(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                found.add(func.value.id)
    return found


def _evaluates(loop: Loop) -> bool:
    """Return whether a loop runs a model and trains none."""
    found = [node for node in walk(loop.body) if isinstance(node, Event)]
    return any("forward" in event.tags for event in found) and not any(event.tags & _TRAINS for event in found)


def _parameters(scope: ast.AST) -> set[str]:
    arguments = scope.args if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else None
    return {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} if arguments else set()


def _whole_loaders(run: RunQuery) -> dict[ast.AST, Happening]:
    """Return the calls that make a loader which gives every rank all items, in order."""
    given = [found.event for found in run.occurrences("prepares", "makes-engine", "trainer", "takes-loader")]
    taken = {atom.node for event in given for value in event.arguments.values() for atom in instances(value)}
    return {
        found.event.node: found
        for found in run.occurrences("makes-loader")
        if found.event.api == _LOADER and found.event.node not in taken and _is_whole(run, found.event)
    }


def _is_whole(run: RunQuery, event: Event) -> bool:
    sampler, shuffle = event.arguments.get("sampler"), event.arguments.get("shuffle")
    if event.open or event.lanes != run.machine.worlds.full or _given(event.arguments.get("batch_sampler")):
        return False
    if _given(shuffle) and shuffle is not None and shuffle.constants != (False,):
        return False
    if sampler is not None and _given(sampler) and {atom.cls for atom in instances(sampler)} != {_IN_ORDER}:
        return False
    varies, _, _ = event.snapshot.get("dataset", (LOST, 0, None))
    if varies & (DATA | RANKED | HOST | RANDOM | LOST) or event.module.search(PARALLEL):
        return False
    if event.sources:
        return all(ITERABLE not in source.bases and is_blind(run, source) for source in event.sources)
    return _is_of_library(event.arguments.get("dataset"))


def _given(value: Value | None) -> bool:
    return value is not None and value.constants != (None,)


def _is_of_library(value: Value | None) -> bool:
    """Return whether a data set is one of a library, or a part of it by its name."""
    atoms = value.atoms if value is not None else ()
    named = [atom for atom in atoms if isinstance(atom, Instance) and isinstance(atom.cls, str)]
    is_known = any(atom.cls and "Iterable" not in str(atom.cls) for atom in named)
    return is_known and all(
        atom in named and (bool(getattr(atom, "cls", "")) or isinstance(getattr(atom, "node", None), ast.Subscript))
        for atom in atoms
    )
