"""Edits on the arguments of a call."""

from __future__ import annotations

import libcst as cst

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.parse.python import ScriptDoc


def keyword_edit(doc: ScriptDoc, call: cst.Call, name: str, text: str) -> Edit | None:
    """Pass ``name=text``, in place of another value of that keyword; ``None`` where the call has no room for it."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return Edit(doc.path, doc.span(arg.value), text)
    if not call.args:
        end = doc.span(call).end - 1
        return Edit(doc.path, Span(end, end), f"{name}={text}")
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        return None  # ``f(x for x in y)``: the only argument, or parentheses would be needed
    end = doc.span(last).end
    return Edit(doc.path, Span(end, end), f", {name}={text}")
