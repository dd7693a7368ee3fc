"""What a called function does, told at the call; and the calls that end the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import libcst as cst

from dslint.model.script.across.project import Foreign
from dslint.model.script.dotted import is_none
from dslint.model.script.parameters import Bound
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.traces.elements import Choice, Decided, Element, Maybe, Op, Trace, rebuilt


class Given(NamedTuple):
    """An argument: whether it is true, where that is known, and its text."""

    truth: bool | None
    text: str


def is_told_alone(call: cst.Call, bound: Bound) -> bool:
    """A rank below 0, which stands for a run without distribution, is handed over: ``load(path, rank=-1)``."""
    named = {a.keyword.value: a.value for a in call.args if a.keyword is not None}  # also into ``**kwargs``
    return any(
        (name == "rank" or name.endswith("_rank")) and (number_of(value) or 0) < 0
        for name, value in (named | bound.passed | bound.defaults).items()
    )


def retold(
    trace: Trace,
    call: cst.Call,
    helper: cst.FunctionDef,
    given: Mapping[str, Given],
    foreign: Foreign | None = None,
    shared: frozenset[str] = frozenset(),
) -> Trace:
    """What a called function does, at the call: choices that its arguments make are made.

    ``foreign`` when the function stands in another file. ``shared``: the tests that ask the same where it is called.
    """
    found: list[Element] = []

    def inner(part: Trace) -> Trace:
        return retold(part, call, helper, given, foreign, shared)

    for element in trace:
        if isinstance(element, Op):
            found.append(replace(element, call=call, through=helper, foreign=foreign))
        elif isinstance(element, Maybe):
            found.append(Maybe(call))
        elif isinstance(element, Choice):
            told = given.get(element.symbol)
            then, orelse = inner(element.then), inner(element.orelse)
            if told is None:
                is_inner = element.inner or element.symbol not in shared
                found.append(Choice(element.symbol, then, orelse, inner=is_inner, split=element.split))
            elif told.truth is None:
                symbol = told.text.removeprefix("not ")
                arms = (then, orelse) if symbol == told.text else (orelse, then)
                found.append(Choice(symbol, *arms, split=element.split))
            else:
                found += then if told.truth else orelse
        elif type(element) is not Decided:
            found.append(rebuilt(element, inner))
    return tuple(found)


def ending(node: cst.BaseExpression | None) -> str:
    """``exit(1)`` tells the launcher to stop the other ranks; ``exit()`` leaves them alone."""
    code = node.args[0].value if type(node) is cst.Call and node.args else None
    quiet = code is None or (type(code) is cst.Integer and code.value == "0") or is_none(code)
    return "end" if quiet else "crash"
