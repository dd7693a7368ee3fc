"""What the names mean that the settings of a project add: guards, collectives, trainers and engines of its own."""

from __future__ import annotations

import ast

from dslint.python.libraries import Row, row_of
from dslint.python.machine import Machine
from dslint.python.ranknames import first
from dslint.python.source import Module
from dslint.python.values import Value

_ENGINE = "new deepspeed.DeepSpeedEngine(module=parameter model, optimizer=new deepspeed.EngineOptimizer)"
_SIGNATURE = "model=None, *args, **kwargs"
# The rows of the names, by the key of the settings; a call whose result is unpacked gives a tuple.
_ROWS: dict[str, dict[str, object]] = {
    "collectives": {"tags": ["collective"]},
    "engines": {"signature": _SIGNATURE, "tags": ["makes-engine", "wraps-model"], "returns": _ENGINE, "wraps": "model"},
}
_UNPACKED = f"tuple({_ENGINE}, field optimizer)"


def _kind(m: Machine, node: ast.expr) -> str:
    """Return what a name or attribute means by the settings, as its module imports it."""
    own = m.libraries.own
    word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if own is None or (word not in own.words and word not in m.frame.module.imported):
        return ""
    return own.kind(m.frame.module.path_of(node) or word)


def read(m: Machine, node: ast.Name | ast.Attribute) -> Value | None:
    """Return what a flag or property of the project holds that asks for the first process; `None` for other names."""
    return _first(m, node) if _kind(m, node) == "guards" else None


def called(m: Machine, node: ast.Call) -> Value | None:
    """Return the result of calling a function that the settings name; `None` for other functions."""
    kind = _kind(m, node.func)
    if kind == "guards":
        return _first(m, node)
    if kind not in _ROWS:
        return None
    from dslint.python.invoke import evaluated
    from dslint.python.library import call_row

    row = _row(node.func, kind, is_unpacked=kind == "engines" and _is_unpacked(m.frame.module, node))
    return call_row(m, row, evaluated(m, node), None, node, None)


def decorated(m: Machine, node: ast.expr) -> int | None:
    """Return the lanes on which a function runs that a guard of the project decorates; `None` for other names."""
    if _kind(m, node.func if isinstance(node, ast.Call) else node) != "guards":
        return None
    return m.worlds.main


def _first(m: Machine, node: ast.AST) -> Value:
    return first(m, 0).with_(0, origin=(m.frame.module, node))


def _row(node: ast.expr, kind: str, *, is_unpacked: bool) -> Row:
    table = {**_ROWS[kind], **({"returns": _UNPACKED} if is_unpacked else {})}
    return row_of(ast.unparse(node), table)


def _is_unpacked(module: Module, node: ast.Call) -> bool:
    """Return whether the result of a call is taken apart: `engine, optimizer, *_ = build(model)`."""
    return any(
        isinstance(n, ast.Assign) and n.value is node and isinstance(n.targets[0], ast.Tuple | ast.List)
        for n in module.nodes
    )
