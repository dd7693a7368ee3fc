"""Timeouts of process groups that are numbers where a `timedelta` is needed, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding
from dslint.python.durations import is_duration
from dslint.python.events import Event
from dslint.python.values import Const, Unknown, Value
from dslint.rules.base import RuleMeta
from dslint.rules.everyrank import row_of
from dslint.rules.groups import argument_text, called, timeout_name, timeout_of
from dslint.rules.runs import RunQuery

_KINDS = {"int": "number", "float": "number", "str": "text"}


def wrong_timeouts(run: RunQuery, meta: RuleMeta) -> Iterator[Finding]:
    """Yield a finding for each timeout that reaches a call as a number or text, or the other way round."""
    for found in run.happenings("takes-timeout"):
        event = found.event
        value, numbers = timeout_of(run, event), str(row_of(run, event).get("seconds", ""))
        if value is None or event.may or event.module.path.endswith(".ipynb"):
            continue
        name = timeout_name(run, event)
        kind = _kind_of(value)
        if argument_text(run, event, name)[1] is event.node and event.module.path == run.path:
            continue  # what a call unpacks is told where it is written
        if numbers == "only":
            if is_duration(value):
                yield _told(run, meta, event, name, "timedelta", "a number of seconds")
        elif kind and not (numbers == "float" and _is_float(value)):
            yield _told(run, meta, event, name, kind, "a `datetime.timedelta`")


def _kind_of(value: Value) -> str:
    """Return `number` or `text` when a value is certainly one, whatever its size."""
    kinds = set()
    for atom in value.atoms:
        if isinstance(atom, Const):
            kinds.add(_KINDS.get(atom.kind.__name__, ""))
        else:
            kinds.add(_KINDS.get(atom.type.removeprefix("builtins."), "") if isinstance(atom, Unknown) else "")
    return kinds.pop() if len(kinds) == 1 else ""


def _is_float(value: Value) -> bool:
    return not all(isinstance(atom, Const) and isinstance(atom.value, int | str) for atom in value.atoms)


def _told(run: RunQuery, meta: RuleMeta, event: Event, name: str, kind: str, wanted: str) -> Finding:
    text, node = argument_text(run, event, name)
    call = event.api.rpartition(".")[2]
    known = event.arguments[name].constants
    value = known[0] if known is not None and len(known) == 1 and isinstance(known[0], int | float | str) else None
    return run.finding(
        meta,
        event.module,
        node,
        f"`{name}={text}` of `{called(run, event)}` is a {kind}, but {wanted} is needed: the call raises on every rank",
        hint="Pass the seconds as a number" if kind == "timedelta" else "Make it `timedelta(seconds=...)`",
        facts={"call": "ddp_timeout-timedelta" if kind == "timedelta" else call, "value": value},
    )
