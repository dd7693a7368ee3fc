"""Forwards of one model from which a loss is certainly computed: `engine(a)` and `engine(b)` in one graph."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from dslint.python.events import Call, Event, Seq, walk
from dslint.python.program import Program
from dslint.python.queries.skipped import is_frozen
from dslint.python.scopes import own_nodes
from dslint.python.source import Module
from dslint.python.values import Function

_MAX_STEPS = 25
_MAX_MODULES = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Methods whose result hangs on the tensor that they are called on, and fields that do.
_KEEPS = frozenset(
    {
        *("mean", "sum", "square", "pow", "abs", "sqrt", "exp", "log", "softmax", "log_softmax", "float", "view"),
        *("reshape", "squeeze", "unsqueeze", "transpose", "flatten", "norm", "sigmoid", "tanh", "contiguous"),
        *("t", "permute", "to", "cuda", "matmul", "mm", "add", "sub", "mul", "div", "clamp", "half", "bfloat16"),
    }
)
_DRAWN = frozenset({"T", "mT", "loss", "logits", "last_hidden_state", "pooler_output"})
_TENSORS = frozenset({"input", "target", "input1", "input2", "x1", "x2"})
_FUNCTIONAL = "torch.nn.functional"


@dataclass(frozen=True, slots=True)
class _Here:
    """A function whose code is read, with the calls through which it was entered, innermost first."""

    module: Module
    scope: ast.AST
    calls: tuple[Call, ...] = ()


class JointForwards:
    """Follows a loss through what keeps its graph alone: anything else ends the search, and no forward is invented."""

    def __init__(self, program: Program, trees: Iterable[Seq], forwards: Iterable[Event]) -> None:
        """Read the calls of some trees; `forwards` are those of models."""
        self._program = program
        self._forwards = {id(event.node): event for event in forwards}
        self._calls: dict[int, Call] = {}
        self._frozen: set[int] = set()
        for node in (node for tree in trees for node in walk(tree)):
            if is_frozen(node):
                self._frozen.add(id(node.node))  # type: ignore[union-attr]
            if isinstance(node, Call) and isinstance(node.function, Function):
                self._calls.setdefault(id(node.node), node)

    def of(self, loss: ast.expr, module: Module, scope: ast.AST, calls: tuple[Call, ...]) -> list[Event]:
        """Return the forwards in the graph of an expression in a function (`calls` lead to it, outermost first)."""
        found = self._certain(loss, _Here(module, scope, calls[::-1]), 0)
        return list({id(event.node): event for event in found}.values())

    def _certain(self, node: ast.expr, here: _Here, steps: int) -> Iterator[Event]:
        if steps > _MAX_STEPS:
            return
        forward = self._forwards.get(id(node))
        if forward is not None:
            yield forward
            return
        for part, inner in self._parts(node, here):
            yield from self._certain(part, inner, steps + 1)

    def _parts(self, node: ast.expr, here: _Here) -> Iterator[tuple[ast.expr, _Here]]:
        if isinstance(node, ast.Starred):
            yield from self._of_starred(node, here)
        elif isinstance(node, ast.Name) or _is_field(node):
            yield from self._of_name(ast.unparse(node), here)
        elif isinstance(node, ast.BinOp):
            yield from ((node.left, here), (node.right, here))
        elif isinstance(node, ast.UnaryOp):
            yield node.operand, here
        elif isinstance(node, ast.Attribute) and node.attr in _DRAWN:
            yield node.value, here
        elif isinstance(node, ast.Call):
            yield from self._of_call(node, here)

    def _of_name(self, name: str, here: _Here) -> Iterator[tuple[ast.expr, _Here]]:
        """Yield the one value of a name in its function, also of `q, p = engine(a), engine(b)`."""
        empty = {id(n.targets[0]) for n in own_nodes(here.scope) if isinstance(n, ast.Assign) and _is_none(n.value)}
        stores = [n for n in own_nodes(here.scope) if _is_bound(n) and ast.unparse(n) == name and id(n) not in empty]
        if not stores and here.calls:
            yield from _passed(name, here)
        if len(stores) != 1 or self._is_frozen_at(here.scope, stores[0]):
            return
        for node in own_nodes(here.scope):
            if isinstance(node, ast.AnnAssign) and node.target is stores[0] and node.value is not None:
                yield node.value, here
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
                if target is stores[0]:
                    yield value, here
                elif isinstance(target, ast.Tuple | ast.List) and stores[0] in target.elts:
                    at = target.elts.index(stores[0])
                    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                        yield value.elts[at], here

    def _of_starred(self, node: ast.Starred, here: _Here) -> Iterator[tuple[ast.expr, _Here]]:
        """Yield the two first parts of a tuple that is unpacked into arguments."""
        values = [(node.value, here)] if isinstance(node.value, ast.Tuple) else list(self._parts(node.value, here))
        for value, inner in values if len(values) == 1 else ():
            yield from ((part, inner) for part in value.elts[:2]) if isinstance(value, ast.Tuple) else ()

    def _of_call(self, node: ast.Call, here: _Here) -> Iterator[tuple[ast.expr, _Here]]:
        call = self._calls.get(id(node))
        if call is not None and isinstance(call.function, Function):
            function = call.function.node
            if isinstance(function, ast.Lambda):
                yield function.body, _Here(call.function.module, function, (call, *here.calls))
                return
            returns = [n.value for n in own_nodes(function) if isinstance(n, ast.Return)]
            if len(returns) == 1 and returns[0] is not None and not is_frozen(call):
                yield returns[0], _Here(call.function.module, function, (call, *here.calls))
        elif self._is_functional(node.func, here):
            yield from ((part, here) for part in node.args[:2])
            yield from ((k.value, here) for k in node.keywords if k.arg in _TENSORS)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS:
            yield node.func.value, here

    def _is_functional(self, function: ast.expr, here: _Here) -> bool:
        """Return whether a call means a function of `torch.nn.functional`, by imports here and in modules between."""
        words = ast.unparse(function).split(".")
        inside = [node for node in own_nodes(here.scope) if isinstance(node, ast.Import | ast.ImportFrom)]
        return any(path.startswith(f"{_FUNCTIONAL}.") for path in self._paths(words, here.module, inside, 0))

    def _paths(self, words: list[str], module: Module, inside: Sequence[ast.AST], steps: int) -> Iterator[str]:
        """Yield what the imports of a module, or of a function in it, make of a dotted name."""
        program, (first, *rest) = self._program, words
        for node in (*inside, *module.tree.body) if steps < _MAX_MODULES else ():
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                name = alias.asname or (
                    alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]
                )
                if name not in (first, "*"):
                    continue
                if isinstance(node, ast.ImportFrom):
                    home = "." * node.level + (node.module or "")
                    inner = [first if name == "*" else alias.name, *rest]
                else:
                    home, inner = alias.name if alias.asname else first, rest
                path = program.resolve(module, home)
                own = program.load(path) if path else None
                if own is not None and inner:
                    yield from self._paths(inner, own, [], steps + 1)
                else:
                    yield ".".join((home, *inner))

    def _is_frozen_at(self, scope: ast.AST, node: ast.AST) -> bool:
        blocks = (n for n in own_nodes(scope) if isinstance(n, ast.With | ast.AsyncWith) and id(n) in self._frozen)
        return any(inner is node for block in blocks for inner in ast.walk(block))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_field(node: ast.AST) -> bool:
    """Return whether a node is a field of the object itself, which its methods read and write like a variable."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    is_place = isinstance(node, ast.Name) or _is_field(node)
    return is_place and isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _passed(name: str, here: _Here) -> Iterator[tuple[ast.expr, _Here]]:
    """Yield what the call of the function passes for a parameter."""
    arguments, call = getattr(here.scope, "args", None), here.calls[0].node
    if arguments is None or not isinstance(call, ast.Call):
        return
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    at = names.index(name) - (names[:1] in (["self"], ["cls"])) if name in names else -1
    outer = _Here(here.calls[0].module, _scope_of(here.calls[0].module, call), here.calls[1:])
    if 0 <= at < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        yield call.args[at], outer
    yield from ((k.value, outer) for k in call.keywords if k.arg == name)


def _scope_of(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, or its module."""
    found: ast.AST = module.tree
    for scope in module.nodes:
        if isinstance(scope, _FUNCTIONS) and any(inner is node for inner in own_nodes(scope)):
            found = scope
    return found
