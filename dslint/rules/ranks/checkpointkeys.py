"""The keys of checkpoints: those that `torch.save` writes, and those that code reads of what `torch.load` gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

_GROWS = ("update", "setdefault")


def keys_written(run: RunQuery, save: Event) -> frozenset[str] | None:
    """Return the keys of the dictionary that is saved, in any of its forms; `None` where there may be others."""
    value = save.arguments.get("obj")
    found = instances(value)
    if value is None or not found or len(found) != len(value.atoms):
        return None
    keys: set[str] = set()
    for atom in found:
        is_dict = atom.cls == "builtins.dict"
        module = run.machine.program.home_of(atom.node) if is_dict else None
        own = _keys_of(module, atom.node) if module is not None else None
        if own is None:
            return None
        keys |= own
    return frozenset(keys)


def some_keys_written(run: RunQuery, save: Event) -> frozenset[str]:
    """Return keys that the dictionary which is saved certainly has in one of its forms: there may be others."""
    found: set[str] = set()
    for atom in instances(save.arguments.get("obj")):
        module = run.machine.program.home_of(atom.node) if atom.cls == "builtins.dict" else None
        if module is not None:
            found |= {key for key in _given(module, atom.node) if isinstance(key, str)}
    return frozenset(found)


def _keys_of(module: Module, made: ast.AST) -> set[str] | None:
    """Return the keys of a dictionary display, with those that its variable gets in the same function."""
    given = _given(module, made)
    return None if any(not isinstance(text, str) for text in given) else {str(text) for text in given}


def _given(module: Module, made: ast.AST) -> list[object]:
    """Return the keys of a dictionary display or call, and what its variable gets; `None` for one that is not known."""
    given: list[ast.AST | None]
    if isinstance(made, ast.Dict):
        given = list(made.keys)
    elif isinstance(made, ast.Call) and not made.args:
        given = [ast.Constant(keyword.arg) if keyword.arg else None for keyword in made.keywords]
    else:
        return [None]
    statement = module.parents.get(made)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {ast.unparse(target) for target in targets}
    scope = module.function(made) or module.tree
    for node in ast.walk(scope) if names else ():
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in names:
            given.append(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            given += [None] if ast.unparse(node.func.value) in names else []
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) in names:
            given.append(None)
    return [key.value if isinstance(key, ast.Constant) else None for key in given]


def reads(load: Event) -> Iterator[tuple[str, ast.Subscript]]:
    """Yield the keys that a function certainly takes out of what it has loaded, where nothing asks for them before."""
    module, call = load.module, load.node
    scope = module.function(call) or module.tree
    held = _held(scope, call)
    asked = set(_asked(scope, held))
    for node in ast.walk(scope):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        key = node.slice
        is_of_file = node.value is call or ast.unparse(node.value) in held
        text = key.value if isinstance(key, ast.Constant) else None
        if is_of_file and isinstance(text, str) and text not in asked and not _is_tried(module, node):
            yield text, node


def _held(scope: ast.AST, call: ast.AST) -> set[str]:
    """Return the variables that hold what a call has loaded and nothing else."""
    assigned = [node for node in ast.walk(scope) if isinstance(node, ast.Assign)]
    held = {ast.unparse(target) for node in assigned if node.value is call for target in node.targets}
    others = {ast.unparse(target) for node in assigned if node.value is not call for target in node.targets}
    return held - others


def _asked(scope: ast.AST, held: set[str]) -> Iterator[str]:
    """Yield the keys for which some code looks first, or which it writes itself."""
    for node in ast.walk(scope):
        key: ast.AST | None = None
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).removesuffix(".keys()") in held:
            key = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = node.args[0] if ast.unparse(node.func.value) in held else None
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            key = node.slice if ast.unparse(node.value) in held else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def is_tried(event: Event) -> bool:
    """Return whether a call stands in a `try` of its function whose handlers take what it raises."""
    return _is_tried(event.module, event.node)


def _is_tried(module: Module, node: ast.AST) -> bool:
    while node in module.parents:
        node = module.parents[node]
        if isinstance(node, ast.Try) and node.handlers:
            return True
    return False
