"""Configurations of DeepSpeed that a script hands on as dictionaries: where in the code their settings stand."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.python.values import Instance

if TYPE_CHECKING:
    from dslint.python.events import Event, Settings
    from dslint.python.source import Module
    from dslint.rules.runs import RunQuery


def place_of(run: RunQuery, event: Event, pointer: str) -> tuple[Module, ast.AST]:
    """Return the code of a setting of the configuration that a call takes; of the call where it cannot be told."""
    settings = event.settings
    section = _display(settings, pointer.rpartition("/")[0]) if settings is not None else None
    found = value_in(section, pointer.rpartition("/")[2]) or section
    module = module_of(run, found) if found is not None else None
    return (module, found) if module is not None and found is not None else (event.module, event.node)


def module_of(run: RunQuery, node: ast.AST) -> Module | None:
    """Return the module in which a node stands."""
    return run.machine.program.home_of(node)


def value_in(display: ast.AST | None, key: str) -> ast.expr | None:
    """Return the code of an item of `{...}` or `dict(...)`."""
    if isinstance(display, ast.Dict):
        pairs = zip(display.keys, display.values, strict=True)
        return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
    if isinstance(display, ast.Call) and ast.unparse(display.func).rpartition(".")[2] in ("dict", "update"):
        return next((k.value for k in display.keywords if k.arg == key), None)
    return None


def _display(settings: Settings, pointer: str) -> ast.AST | None:
    if not pointer:
        return settings.node
    value = settings.items.get(pointer)
    atom = value.single if value is not None else None
    return atom.node if isinstance(atom, Instance) else None


def setting_of(run: RunQuery, event: Event, pointer: str) -> tuple[Module, ast.expr] | None:
    """Return the expression that a setting is given: in the display of its section, else the only assignment to it."""
    settings = event.settings
    if settings is None or pointer not in settings.items:
        return None
    key = pointer.rpartition("/")[2]
    found = value_in(_display(settings, pointer.rpartition("/")[0]), key)
    module = module_of(run, found) if found is not None else None
    if module is not None and found is not None:
        return module, found
    written = [(m, value) for m in run.machine.program.modules() for value in _written(m.tree, key)]
    return written[0] if len(written) == 1 else None


def _written(tree: ast.Module, key: str) -> list[ast.expr]:
    """Return what a module puts under a key: `x[key] = ...`, `{key: ...}`, `dict(key=...)`."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = [t for t in node.targets if isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Constant)]
            found += [node.value for target in targets if getattr(target.slice, "value", None) == key]
        else:
            inner = value_in(node, key)
            found += [inner] if inner is not None else []
    return found
