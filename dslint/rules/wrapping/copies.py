"""Expressions that make a tensor of their own: what is written into it, nobody finds in what it was made of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.ranks.hosttensors import HostTensors
from dslint.rules.runs import RunQuery

# Methods that give a new tensor, those that give the tensor itself or a view, and those that copy where it must be.
_COPIES = frozenset(
    {"clone", "sum", "mean", "max", "min", "amax", "amin", "prod", "norm", "std", "var", "pow", "square", "sqrt", "exp"}
    | {"log", "abs", "neg", "round", "div", "mul", "add", "sub", "new_tensor", "masked_fill", "float_power"}
)
_SAME = frozenset(
    {"detach", "view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "requires_grad_", "expand", "t"}
)
_MOVES = frozenset({"to", "cuda", "npu", "xpu"})
_CASTS = frozenset({"float", "double", "half", "bfloat16", "long", "int", "type", "cpu"})
_VIEWS = frozenset({"data", "T", "mT"})
# Functions of torch that make a tensor of numbers or of other tensors.
_MAKERS = frozenset({"tensor", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor", "stack", "cat"})
_MEANINGLESS = frozenset({"zeros", "ones", "empty", "full", "rand", "randn"})
_LOADED = (ast.Name, ast.Attribute)


@dataclass
class Copies:
    """Answers for the code of one run."""

    run: RunQuery

    def is_copy(self, module: Module, node: ast.expr) -> bool:
        """Return whether an expression makes a new tensor of what a variable holds."""
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            return any(isinstance(inner, _LOADED) for inner in ast.walk(node))
        if isinstance(node, ast.Attribute):
            return node.attr in _VIEWS and self.is_copy(module, node.value)
        if not isinstance(node, ast.Call):
            return False
        path = module.path_of(node.func)
        if path.startswith("torch.") and "(" not in path:
            return path.rpartition(".")[2] in _MAKERS and bool(node.args) and _holds_variable(node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return False
        name, base = node.func.attr, node.func.value
        if name in _COPIES:
            return _holds_variable(base) and not module.path_of(base)
        if name in _MOVES and self._is_on_host(node):
            return _holds_variable(base)
        return name in _SAME | _MOVES | _CASTS and self.is_copy(module, base)

    def _is_on_host(self, node: ast.Call) -> bool:
        """Return whether what a call moves to a device certainly lies in the memory of the host."""
        event = self._moves.get(node)
        return event is not None and event.receiver is not None and bool(self._host.places(event.receiver))

    @cached_property
    def _host(self) -> HostTensors:
        return HostTensors(self.run)

    @cached_property
    def _moves(self) -> dict[ast.AST, Event]:
        return {found.event.node: found.event for found in self.run.occurrences("moves-to-device")}


def _holds_variable(node: ast.expr) -> bool:
    """Return whether an expression reads a variable or calls something, and is more than constants on a device."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _MEANINGLESS:
        return False  # all ranks only wait
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = [node.func.value, *node.args] if not _is_module(node.func.value) else list(node.args)
        return any(map(_holds_variable, inner))
    return any(isinstance(inner, _LOADED) for inner in ast.walk(node))


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "numpy", "th")


def assigned(scope: ast.AST, name: str) -> list[ast.expr]:
    """Return what a function gives to a variable."""
    return [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == name
    ]


def reads(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield where a function reads a variable."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node
