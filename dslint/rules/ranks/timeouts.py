"""Timeouts of process groups that are numbers where a `timedelta` is needed, or the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.python.durations import is_duration
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import Const, Unknown, Value
from dslint.rules.base import RuleMeta
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.groups import argument_text, called, timeout_name, timeout_of
from dslint.rules.runs import RunQuery

_KINDS = {"int": "number", "float": "number", "str": "text"}


def wrong_timeouts(run: RunQuery, meta: RuleMeta) -> Iterator[Finding]:
    """Yield a finding for each timeout that reaches a call as a number or text, or the other way round."""
    for found in run.happenings("takes-timeout"):
        event = found.event
        value, numbers = timeout_of(run, event), str(row_of(run, event).get("seconds", ""))
        if value is None or event.may:
            continue
        name = timeout_name(run, event)
        kind = _kind_of(value)
        if numbers == "only":
            if is_duration(value):
                yield _told(run, meta, event, name, "timedelta", "a number of seconds")
        elif kind and not (numbers == "float" and _is_float(value)):
            yield _told(run, meta, event, name, kind, "a `datetime.timedelta`")
        elif not kind and not numbers and (kind := _by_default(run, value)):
            yield _told(run, meta, event, name, kind, "a `datetime.timedelta`", " by default")
        elif not kind and not numbers and (kind := _when_given(run, value)):
            yield _told(run, meta, event, name, kind, "a `datetime.timedelta`", " if given")


def _kind_of(value: Value) -> str:
    """Return `number` or `text` when a value is certainly one, whatever its size."""
    kinds = set()
    for atom in value.atoms:
        if isinstance(atom, Const):
            kinds.add(_KINDS.get(atom.kind.__name__, ""))
        else:
            kinds.add(_KINDS.get(atom.type.removeprefix("builtins."), "") if isinstance(atom, Unknown) else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _when_given(run: RunQuery, value: Value) -> str:
    """Return what an option is that has no default, and that a launch command need not pass."""
    kind = run.machine.converted.get(value.number, "") if value.number is not None else ""
    return _KINDS.get(kind.removeprefix("builtins."), "").replace("text", "")


def _by_default(run: RunQuery, value: Value) -> str:
    """Return what the default of a parameter is that nobody gives another value."""
    is_parameter = isinstance(value.number, tuple) and value.number[:1] == ("parameter",)
    default = run.machine.defaults.get(value.number) if is_parameter else None
    return _kind_of(default) if default is not None else ""


def _is_float(value: Value) -> bool:
    return not all(isinstance(atom, Const) and isinstance(atom.value, int | str) for atom in value.atoms)


def _told(run: RunQuery, meta: RuleMeta, event: Event, name: str, kind: str, wanted: str, maybe: str = "") -> Finding:
    text, node = argument_text(run, event, name)
    stated = _unpacked(event, name) if node is event.node else None
    text, node = (run.text(event.module, stated), stated) if stated is not None else (text, node)
    call = event.api.rpartition(".")[2]
    known = event.arguments[name].constants
    value = known[0] if known is not None and len(known) == 1 and isinstance(known[0], int | float | str) else None
    is_delta = kind == "timedelta"
    kind = f"`{kind}`" if is_delta else kind
    effect = "transformers" if name == "ddp_timeout" else "the call"
    return run.finding(
        meta,
        event.module,
        node,
        f"`{name}={text}` of `{called(run, event)}` is a {kind}{maybe}, but must be {wanted}: {effect} raises",
        hint=_hint(text, kind, is_stated=node is not event.node),
        fix=None if maybe or kind == "text" or node is event.node else _fix(run, event, text, node, is_delta=is_delta),
        severity=Severity.WARNING if maybe else None,
        facts={"call": "ddp_timeout-timedelta" if is_delta else call, "value": value},
    )


def _hint(text: str, kind: str, *, is_stated: bool) -> str:
    if kind == "number":
        return f"Write `timedelta(seconds={text})`" if is_stated else "Make it `timedelta(seconds=...)`"
    if kind == "text":
        return "Write `timedelta(seconds=...)`"
    return f"Write `int({text}.total_seconds())`, or the seconds as a number"


def _fix(run: RunQuery, event: Event, text: str, node: ast.AST, *, is_delta: bool) -> Fix | None:
    """Return the edit that makes a `timedelta` of a number, or a number of a `timedelta`."""
    if event.module.path != run.path:
        return None
    here = event.module.span(node)
    text = event.module.text(node)
    if is_delta:
        return Fix("Pass the seconds", (Edit(run.path, here, f"int({text}.total_seconds())"),))
    spelling = _timedelta(event.module)
    edits = [Edit(run.path, here, f"{spelling or 'timedelta'}(seconds={text})")]
    if not spelling:
        edits.insert(0, _import_edit(run.path, event.module.source.text))
    return Fix("Read the number as seconds", tuple(edits))


def _timedelta(module: Module) -> str:
    """Return how a file spells `datetime.timedelta`; empty when it imports neither."""
    found = ""
    for statement in module.tree.body:
        for alias in statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ():
            if isinstance(statement, ast.ImportFrom) and (statement.module, alias.name) == ("datetime", "timedelta"):
                return alias.asname or alias.name
            if isinstance(statement, ast.Import) and alias.name == "datetime":
                found = f"{alias.asname or alias.name}.timedelta"
    return found


def _import_edit(path: str, text: str) -> Edit:
    """Insert `from datetime import timedelta` before the first import that stands at the start of a line."""
    offset = 0
    for line in text.splitlines(keepends=True):
        if line.startswith(("import ", "from ")) and not line.startswith("from __future__"):
            newline = "\r\n" if line.endswith("\r\n") else "\n"
            return Edit(path, Span(offset, offset), f"from datetime import timedelta{newline}")
        offset += len(line)
    return Edit(path, Span(0, 0), "from datetime import timedelta\n")


def _unpacked(event: Event, name: str) -> ast.expr | None:
    """Return the only value that code of the file gives to a key of the mappings that a call unpacks."""
    keywords = event.node.keywords if isinstance(event.node, ast.Call) else []
    mappings = [k.value for k in keywords if k.arg is None]
    names = {m.id for m in mappings if isinstance(m, ast.Name)}
    found = [value for mapping in mappings for value in _stated(mapping, name)]
    for node in event.module.nodes if names else ():
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in names:
                found += _stated(node.value, name)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in names:
                found += [node.value] if isinstance(target.slice, ast.Constant) and target.slice.value == name else []
    return found[0] if len(found) == 1 else None


def _stated(mapping: ast.expr, name: str) -> list[ast.expr]:
    """Return the value of a key in a display of a dictionary, or in `dict(...)`."""
    if isinstance(mapping, ast.Dict):
        pairs = zip(mapping.keys, mapping.values, strict=True)
        return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name]
    is_dict = isinstance(mapping, ast.Call) and isinstance(mapping.func, ast.Name) and mapping.func.id == "dict"
    return [k.value for k in mapping.keywords if k.arg == name] if is_dict and isinstance(mapping, ast.Call) else []
