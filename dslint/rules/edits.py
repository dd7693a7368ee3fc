"""Edits of a call in a module that the interpreter has read."""

from __future__ import annotations

import ast

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.python.source import Module


def keyword_edit(module: Module, call: ast.Call, name: str, text: str) -> Edit | None:
    """Pass ``name=text``, in place of another value of that keyword; ``None`` where the call has no room for it."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return Edit(module.path, module.span(keyword.value), text)
    given: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    end = module.span(call).end - 1
    if not given:
        return Edit(module.path, Span(end, end), f"{name}={text}")
    if len(given) == 1 and isinstance(given[0], ast.GeneratorExp):
        return None  # ``f(x for x in y)``: the only argument, or parentheses would be needed
    last = max(module.span(node).end for node in given)
    closed = last + len(module.source.text[last:end]) - len(module.source.text[last:end].lstrip(" )"))
    at = closed if module.source.text[last:closed].count(")") else last
    return Edit(module.path, Span(at, at), f", {name}={text}")
