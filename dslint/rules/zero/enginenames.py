"""How the code calls what an engine is, for hints and fixes."""

from __future__ import annotations

import ast

from dslint.python.events import Event
from dslint.python.source import Module


def variable_of(maker: Event, at: ast.AST) -> str:
    """Return the variable that holds what a call has made, first or alone, where that is certain at a place.

    Both stand in one function, and nothing else is bound to the name there.
    """
    scope = function_of(maker.module, maker.node)
    if scope is not function_of(maker.module, at):
        return ""
    first = target_of(maker, scope)
    name = first.id if isinstance(first, ast.Name) and first.id != "_" else ""
    bound = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    return name if len(bound) == 1 else ""


def function_of(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, else the module."""
    return module.function(node) or module.tree


def can_replace(node: ast.AST) -> bool:
    """Return whether a fix may write another call in the place of one: `loss.backward()`, without arguments."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not (node.args or node.keywords)


def target_of(maker: Event, scope: ast.AST) -> ast.expr | None:
    """Return what the first thing that a call has made, or the only one, is assigned to."""
    target = next((n.targets[0] for n in ast.walk(scope) if isinstance(n, ast.Assign) and _is_of(n, maker.node)), None)
    return target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else target


def _is_of(statement: ast.Assign, node: ast.AST) -> bool:
    value = statement.value.value if isinstance(statement.value, ast.Subscript) else statement.value
    return value is node and len(statement.targets) == 1


def called_on(module: Module, node: ast.AST) -> ast.expr | None:
    """Return the expression whose method a call runs, also by `run = loss.backward; run()` of one function."""
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Name):
        scope = function_of(module, node)
        assigned = [n for n in ast.walk(scope) if isinstance(n, ast.Assign)]
        given = [n.value for n in assigned if any(isinstance(t, ast.Name) and t.id == called.id for t in n.targets)]
        called = given[0] if len(given) == 1 else None
    return called.value if isinstance(called, ast.Attribute) else None


def loss_of(event: Event) -> ast.expr | None:
    """Return the loss of a backward pass: what it is called on, or what an Accelerator or Fabric gets."""
    if event.api.startswith("torch.Tensor"):
        return called_on(event.module, event.node)
    arguments = event.node.args if isinstance(event.node, ast.Call) else []
    return arguments[0] if arguments else None


def is_scaled(node: ast.expr) -> bool:
    """Return whether a loss is scaled by hand: `scaler.scale(loss)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scale"
