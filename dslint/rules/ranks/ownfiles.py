"""Which saves of a script have written the file that it loads: by the name of the file, or by its keys."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from dslint.python.events import Call, Event, walk
from dslint.python.values import Function
from dslint.rules.ranks.savedweights import OF_RUN, Files, is_same_file, keys_read
from dslint.rules.runs import RunQuery

_COMMON = 2
# So many calls a file may come through before its keys are read.
_MOST_CALLS = 3


def own_saves(
    files: Files, load: Event, saves: Mapping[Event, frozenset[str] | None], wanted: Collection[str]
) -> list[Event]:
    """Return the saves that have written the file: of the same name, or with so many of the keys that are read."""
    same = [save for save in saves if is_same_file(files.name(save), files.name(load))]
    keys = [saves[save] for save in same]
    if same and wanted and all(written is not None and not written & set(wanted) for written in keys):
        return []  # a file of the same name elsewhere, as of the data
    if same:
        return same
    named = files.name(load)
    found = [save for save in saves if not (named and files.name(save))]
    common = [set(wanted) & (saves[save] or frozenset()) for save in found]
    # Where keys that a checkpoint has of its run are read, too, the file is one of the own.
    is_own = any(OF_RUN.search(key) for keys in common for key in keys)
    return found if is_own and max(map(len, common)) >= _COMMON else []


def keys_read_of(run: RunQuery, load: Event) -> frozenset[str]:
    """Return the keys that code reads of a loaded file, or asks for, also where a function has returned it."""
    found: set[str] = set()
    pending = [(load.module, load.node, 0)]
    while pending:
        module, call, depth = pending.pop()
        found |= keys_read(module, call)
        scope = module.function(call)
        if scope is None or depth == _MOST_CALLS or not _is_returned(scope, module.parents.get(call), call):
            continue
        pending += [(caller.module, caller.node, depth + 1) for caller in _callers(run, scope)]
    return frozenset(found)


def _is_returned(scope: ast.AST, statement: ast.AST | None, call: ast.AST) -> bool:
    """Return whether a function returns what a call in it gives, or the variable that takes it."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {ast.unparse(target) for target in targets}
    given = [node.value for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None]
    return any(value is call or ast.unparse(value) in names for value in given)


def _callers(run: RunQuery, scope: ast.AST) -> Iterator[Call]:
    seen: set[int] = set()
    for _, tree in run.trees():
        for node in walk(tree):
            if isinstance(node, Call) and id(node.node) not in seen and _is_of(node, scope):
                seen.add(id(node.node))
                yield node


def _is_of(call: Call, scope: ast.AST) -> bool:
    return isinstance(call.function, Function) and call.function.node is scope
