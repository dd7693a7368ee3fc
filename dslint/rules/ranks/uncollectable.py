"""What a function returns that ranks cannot gather: tensors of the host, and as many entries as a mask leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.source import Module
from dslint.python.values import Function

# Neither changes how many entries there are in the first dimension.
_KEEPS = frozenset(
    {
        "softmax",
        "log_softmax",
        "sigmoid",
        "exp",
        "log",
        "float",
        "half",
        "double",
        "bfloat16",
        "long",
        "int",
        "bool",
        "detach",
        "contiguous",
        "clone",
        "to",
        "cpu",
        "cuda",
        "argmax",
        "squeeze",
        "unsqueeze",
        "round",
        "type",
    }
)
_SELECTS = frozenset({"masked_select", "nonzero", "argwhere", "unique", "unique_consecutive"})
_COMPARES = frozenset({"eq", "ne", "gt", "ge", "lt", "le", "bool"})
_JOINS = frozenset({"cat", "concat", "hstack", "vstack"})
_MAX_STEPS = 12


@dataclass(frozen=True)
class Uncollectable:
    """The expression that makes a result unfit for a gather."""

    node: ast.expr
    kind: str  # "host" or "ragged"


def reason_of(function: Function) -> Iterator[Uncollectable]:
    """Yield what makes a result of a function unfit: the expression that moves it to the host, or that selects."""
    view = _View(function.node, function.module)
    for result in view.results():
        for part in result.elts if isinstance(result, ast.Tuple | ast.List) else [result]:
            node = view.on_host(part, 0)
            if node is not None:
                yield Uncollectable(node, "host")
                continue
            node = view.selected(part, 0)
            if node is not None:
                yield Uncollectable(node, "ragged")


@dataclass(frozen=True)
class _View:
    """One function, whose variables stand for what was assigned to them last."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module

    def results(self) -> Iterator[ast.expr]:
        if isinstance(self.node, ast.Lambda):
            yield self.node.body
            return
        for statement in ast.walk(self.node):
            if isinstance(statement, ast.Return) and statement.value is not None:
                yield statement.value

    def on_host(self, node: ast.expr, steps: int) -> ast.expr | None:
        """Return the call that moves a value to the host, where nothing moves it back."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(node, ast.Name):
            behind = self._assigned(node)
            return self.on_host(behind, steps + 1) if behind is not None else None
        if isinstance(node, ast.Subscript):
            return self.on_host(node.value, steps + 1)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or self._is_module(node.func):
            return None
        method, given = node.func.attr, [*node.args, *(k.value for k in node.keywords)]
        if method == "cpu" or (method == "to" and any(_is_cpu(argument) for argument in given)):
            return node
        if method not in _KEEPS or method == "cuda" or (method == "to" and not all(map(_is_type, given))):
            return None
        return self.on_host(node.func.value, steps + 1)

    def selected(self, node: ast.expr, steps: int) -> ast.expr | None:
        """Return the expression that leaves as many entries as a mask says, where nothing reduces or pads them."""
        if steps > _MAX_STEPS:
            return None
        if isinstance(node, ast.Name):
            behind = self._assigned(node)
            return self.selected(behind, steps + 1) if behind is not None else None
        if isinstance(node, ast.Subscript):
            return node if self._is_mask(node.slice, steps) else self.selected(node.value, steps + 1)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        name = node.func.attr
        if name in _SELECTS:
            return node
        if self._is_module(node.func):
            return self._joined(node, steps) if name in _JOINS else self._argument(node, name, steps)
        # `argmax()` of everything is one number.
        if name not in _KEEPS or (name == "argmax" and not node.args and not node.keywords):
            return None
        return self.selected(node.func.value, steps + 1)

    def _argument(self, node: ast.Call, name: str, steps: int) -> ast.expr | None:
        """Return what selects the first argument of `torch.softmax(x, dim=-1)`."""
        is_kept = name in _KEEPS and bool(node.args) and (name != "argmax" or len(node.args) + len(node.keywords) > 1)
        return self.selected(node.args[0], steps + 1) if is_kept else None

    def _joined(self, node: ast.Call, steps: int) -> ast.expr | None:
        """Return what selects the entries of a list that a loop has filled."""
        if not node.args or not isinstance(node.args[0], ast.Name):
            return None
        for call in ast.walk(self.node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
                owner = call.func.value
                if isinstance(owner, ast.Name) and owner.id == node.args[0].id and len(call.args) == 1:
                    return self.selected(call.args[0], steps + 1)
        return None

    def _is_mask(self, node: ast.expr, steps: int) -> bool:
        """Return whether an index is a comparison of tensors, or a variable that was made by one."""
        if isinstance(node, ast.Tuple):
            return any(self._is_mask(part, steps + 1) for part in node.elts)
        if isinstance(node, ast.Name) and steps <= _MAX_STEPS:
            behind = self._assigned(node)
            return behind is not None and self._is_mask(behind, steps + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            return self._is_mask(node.left, steps + 1) and self._is_mask(node.right, steps + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self._is_mask(node.operand, steps + 1)
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Attribute) and node.func.attr in _COMPARES
        return isinstance(node, ast.Compare) and not isinstance(node.left, ast.Constant)

    def _assigned(self, name: ast.Name) -> ast.expr | None:
        """Return what was assigned to a variable last before it is read; nothing where that is not a single value."""
        found: ast.Assign | None = None
        for statement in ast.walk(self.node):
            if isinstance(statement, ast.Assign) and _names(statement) & {name.id} and _is_before(statement, name):
                found = statement if found is None or statement.lineno > found.lineno else found
        if found is None or len(found.targets) != 1:
            return None
        target, value = found.targets[0], found.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = zip(target.elts, value.elts, strict=True)
            return next((v for t, v in pairs if isinstance(t, ast.Name) and t.id == name.id), None)
        return value if isinstance(target, ast.Name) else None

    def _is_module(self, func: ast.Attribute) -> bool:
        """Return whether a call is one of a module, such as `torch.cat`, and none of a tensor."""
        owner = func.value
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        return isinstance(owner, ast.Name) and owner.id in self.module.imported


def _is_before(statement: ast.Assign, name: ast.Name) -> bool:
    return (statement.end_lineno or statement.lineno) < name.lineno


def _names(statement: ast.Assign) -> set[str]:
    return {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _is_cpu(node: ast.expr) -> bool:
    return "cpu" in [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]


def _is_type(node: ast.expr) -> bool:
    """Return whether an argument of `to` names a type of numbers, and no place."""
    return ast.unparse(node).startswith(("torch.float", "torch.int", "torch.long", "torch.bfloat", "torch.half"))
