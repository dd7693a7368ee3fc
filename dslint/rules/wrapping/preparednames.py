"""The names that a call of `accelerator.prepare` gives models, and what code reads of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.python.events import Event
from dslint.python.scopes import scope_of
from dslint.python.source import Module
from dslint.rules.training.accelerators import MODEL, prepared_by

# What an argument of `prepare` is that may be a model: where its class is not known, `.to(device)` may give it one.
_MAY_BE = ("", MODEL, "torch.Tensor")


def reads_of_prepared(event: Event, attribute: str) -> Iterator[ast.Attribute]:
    """Yield where code below a `prepare` reads an attribute of a name that it has given a model."""
    names = _given_names(event)
    module, line = event.module, getattr(event.node, "lineno", 0)
    scope = module.function(event.node) or module.tree
    others = {name for name in names for node in ast.walk(scope) if _is_other_store(module, node, name, event)}
    for node in ast.walk(scope) if names - others else ():
        if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, ast.Load):
            continue
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        inner = module.function(node)
        is_below = node.lineno > line or inner is not scope
        is_own = inner is not None and inner is not scope and name in scope_of(inner).locals
        if name in names - others and is_below and not is_own:
            yield node


def _given_names(event: Event) -> set[str]:
    """Return the names that get models of a call that prepares."""
    given = prepared_by(event) or []
    statement = event.module.parents.get(event.node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    pairs = zip(targets, given, strict=True) if len(targets) == len(given) else ()
    return {part.id for part, was in pairs if isinstance(part, ast.Name) and was.cls in _MAY_BE}


def _is_other_store(module: Module, node: ast.AST, name: str, event: Event) -> bool:
    """Return whether a node gives a name another value below a `prepare`: that of another model, or unwrapped."""
    if not isinstance(node, ast.Name) or node.id != name or isinstance(node.ctx, ast.Load):
        return False
    statement: ast.AST | None = node
    while statement is not None and not isinstance(statement, ast.stmt):
        statement = module.parents.get(statement)
    is_prepare = statement is not None and any(inner is event.node for inner in ast.walk(statement))
    return not is_prepare and node.lineno > getattr(event.node, "lineno", 0)
