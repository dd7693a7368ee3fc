"""Who makes the keys of a batch, and of what: the code that writes `{"key": value}` or `batch["key"] = value`.

A collator is a function that a library calls with samples that nobody knows, and a key is the same word wherever a
batch is made: both are read from the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.python.names import names_of
from dslint.python.source import Module

_TENSOR_CALLS = ("tensor", "stack", "cat", "pad_sequence", "as_tensor", "from_numpy", "zeros", "ones", "full", "arange")
_TEXT_CALLS = ("str", "repr", "json.dumps", "join", "format")
_MAKES_BATCH = ("dict", "BatchFeature", "BatchEncoding")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Produced:
    """One place that gives a batch key its value.

    `kind`: `text` | `dict` | `list` | `tensor` | `unknown`; `conditional` when only some batches get it.
    """

    module: Module
    node: ast.expr
    kind: str
    conditional: bool

    @property
    def label(self) -> str:
        """Return what to say at the place."""
        times = " in some batches only" if self.conditional else ""
        return f"made here as a {'value' if self.kind == 'unknown' else self.kind}{times}"


class File:
    """One module, and what its names mean."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = names_of(module.tree)
        self.nodes = sorted(module.nodes, key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def _parents(self) -> dict[int, ast.AST]:
        return {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the nearest first."""
        while (parent := self._parents.get(id(node))) is not None:
            yield parent
            node = parent

    def producers(self, key: str) -> Iterator[Produced]:
        """Yield all `{"key": value}`, `batch["key"] = value`, `dict(key=value)`, `batch.update(key=value)`."""
        for node in self.nodes:
            value = self._value_for(node, key)
            if value is not None:
                is_conditional = _may_be_none(value) or self._is_under_test(node)
                yield Produced(self.module, value, self._kind_of(value), is_conditional)

    def _value_for(self, node: ast.AST, key: str) -> ast.expr | None:
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return next((value for known, value in pairs if _is_text(known, key)), None)
        if isinstance(node, ast.Assign):
            return node.value if any(_is_item(target, key) for target in node.targets) else None
        if not isinstance(node, ast.Call):
            return None
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called == "setdefault" and len(node.args) == 2:
            return node.args[1] if _is_text(node.args[0], key) else None
        if called == "update" or (isinstance(node.func, ast.Name) and node.func.id in _MAKES_BATCH):
            return next((k.value for k in node.keywords if k.arg == key), None)
        return None

    def _kind_of(self, value: ast.expr) -> str:
        """Return what an expression evaluates to, as far as its shape tells."""
        value = self.names.behind(value)
        if isinstance(value, ast.JoinedStr) or (
            isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)
        ):
            return "text"
        if isinstance(value, ast.Dict | ast.DictComp):
            return "dict"
        if isinstance(value, ast.List | ast.Tuple | ast.ListComp):
            return "list"
        return self._kind_of_call(value) if isinstance(value, ast.Call) else "unknown"

    def _kind_of_call(self, call: ast.Call) -> str:
        name = self.names.qualified(call.func)
        last = call.func.attr if isinstance(call.func, ast.Attribute) else name
        if name in ("list", "tuple", "dict"):
            return "dict" if name == "dict" else "list"
        if name in _TEXT_CALLS or last in _TEXT_CALLS:
            return "text"
        return "tensor" if last in _TENSOR_CALLS or name.partition(".")[0] == "torch" else "unknown"

    def _is_under_test(self, node: ast.AST) -> bool:
        """Return whether an `if` in the same function decides whether the key is made, and no `else` makes up for it.

        A whole dictionary under an `if` may be one of several that are returned: it counts only in an `update`, or as
        one arm of `{...} if x else {}`.
        """
        is_added = isinstance(node, ast.Assign)
        inner = node
        for parent in self.around(node):
            if isinstance(parent, _FUNCTIONS):
                return False
            if isinstance(parent, ast.IfExp) and inner is not parent.test and not is_added:
                other = parent.orelse if inner is parent.body else parent.body
                return isinstance(other, ast.Dict) and not other.keys
            if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
                is_added = is_added or parent.func.attr in ("update", "setdefault")
            if isinstance(parent, ast.If) and not parent.orelse and is_added:
                return True
            inner = parent
        return False


def _may_be_none(value: ast.expr) -> bool:
    """Return whether a value is like `features[0].get("key")`: `None` where a sample has no such key."""
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "get" and len(getattr(value, "args", ())) == 1


def _is_item(target: ast.expr, key: str) -> bool:
    return isinstance(target, ast.Subscript) and _is_text(target.slice, key)


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
