"""Values that a script takes out of a file which its command names: ``TrainingArguments(fp16=conf["fp16"])``.

The script reads the JSON or YAML itself, so that nobody but the file knows the value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact, known, unknown
from dslint.model.plan.files import Files
from dslint.parse.data import DataDoc, join_pointer
from dslint.python.events import Event
from dslint.python.source import Module

if TYPE_CHECKING:
    from dslint.model.plan.scriptprofile import ScriptProfile

_CHANGES = ("update", "pop", "setdefault", "clear")
_NUMBER = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_SHOWS = re.compile(r"(?:^|\.)(?:print|info|debug|warning|len|dumps|dump|pprint|deepcopy|dict)$")
_LOADS = re.compile(r"(?:json|yaml|toml)\.(?:load|safe_load|full_load)$")


@dataclass(frozen=True, slots=True)
class ReadField:
    """A value at ``pointer`` of a file: the one that the option ``dest`` names, or ``path``."""

    pointer: str
    dest: str = ""
    path: str = ""


def read_fields(event: Event) -> Mapping[str, ReadField]:
    """The arguments of a call that are fields of a file, by name."""
    keywords = event.node.keywords if isinstance(event.node, ast.Call) else []
    found = {keyword.arg: _field(event.module, event.node, keyword.value) for keyword in keywords if keyword.arg}
    return {name: field for name, field in found.items() if field is not None}


def _field(module: Module, call: ast.AST, value: ast.expr) -> ReadField | None:
    keys: list[str] = []
    while isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        keys.append(str(value.slice.value))
        value = value.value
    if not keys or not isinstance(value, ast.Name):
        return None
    scope = scope_of(module, call)
    loads = [n.value for n in ast.walk(scope) if isinstance(n, ast.Assign) and _sets(n, value.id)]
    if len(loads) != 1 or _is_changed(scope, value.id):
        return None
    opened = _opened(scope, loads[0])
    pointer = ""
    for key in reversed(keys):
        pointer = join_pointer(pointer, key)
    if isinstance(opened, ast.Constant) and isinstance(opened.value, str):
        return ReadField(pointer, path=opened.value)
    if isinstance(opened, ast.Attribute) and isinstance(opened.value, ast.Name):
        return ReadField(pointer, dest=opened.attr)
    return None


def scope_of(module: Module, node: ast.AST) -> ast.AST:
    """The function around a call, else the module."""
    line = getattr(node, "lineno", 0)
    around = [n for n in module.nodes_of(ast.FunctionDef) if n.lineno <= line <= (n.end_lineno or 0)]
    return max(around, key=lambda n: n.lineno) if around else module.tree


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _sets(statement: ast.Assign, name: str) -> bool:
    return any(_is_name(target, name) for target in statement.targets)


def _is_changed(scope: ast.AST, name: str) -> bool:
    """Something else is written into the table, or it is handed to somebody who may do so."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            base: ast.expr = node
            while isinstance(base, ast.Subscript):
                base = base.value
            if _is_name(base, name):
                return True
        if isinstance(node, ast.Call):
            method = node.func
            if isinstance(method, ast.Attribute) and method.attr in _CHANGES and _is_name(method.value, name):
                return True
            if any(_is_name(arg, name) for arg in node.args) and not _SHOWS.search(ast.unparse(node.func)):
                return True
    return False


def _opened(scope: ast.AST, load: ast.expr) -> ast.expr | None:
    """The path of ``json.load(open(PATH))``, of ``with open(PATH) as f: json.load(f)``."""
    if not isinstance(load, ast.Call) or not load.args or _LOADS.search(ast.unparse(load.func)) is None:
        return None
    file = load.args[0]
    if isinstance(file, ast.Call):
        return _path(file)
    for node in ast.walk(scope):
        for item in node.items if isinstance(node, ast.With) else ():
            opened, named = item.context_expr, item.optional_vars
            is_ours = isinstance(named, ast.Name) and _is_name(file, named.id)
            if is_ours and isinstance(opened, ast.Call) and any(inner is load for inner in ast.walk(node)):
                return _path(opened)
    return None


def _path(call: ast.Call) -> ast.expr | None:
    return call.args[0] if call.args and ast.unparse(call.func) in ("open", "io.open") else None


def filled_from_files(
    arguments: Mapping[str, Fact[Any]], profile: ScriptProfile | None, given: Mapping[str, Fact[Any]], files: Files
) -> dict[str, Fact[Any]]:
    """The arguments of a Trainer with those values that stand in a file of the project."""
    found = dict(arguments)
    fields = profile.constructed.fields if profile is not None else {}
    for name, field in fields.items():
        if name in found and found[name].is_unknown:
            fact = _value(field, given, files)
            found[name] = fact if fact.is_known else found[name]
    return found


def _value(field: ReadField, given: Mapping[str, Fact[Any]], files: Files) -> Fact[Any]:
    path = given.get(field.dest, unknown("not given")).get_or(None) if field.dest else field.path
    doc = _document(path, files) if isinstance(path, str) else None
    value = doc.get(field.pointer) if doc is not None and not doc.problems else None
    # YAML reads `1e-5` as a text, and what becomes of that is up to the script.
    is_text = isinstance(value, str) and _NUMBER.fullmatch(value)
    if doc is None or is_text or not isinstance(value, bool | int | float | str):
        return unknown("the file is not found, or does not say it")
    return known(value, doc.value(field.pointer))


def _document(path: str, files: Files) -> DataDoc | None:
    found = files.find(path)
    if found is None:
        return None
    return files.workspace.json(found) if found.endswith(".json") else files.workspace.yaml(found)
