"""Calls of the classes around the Hugging Face Trainer: who takes the arguments, and what the file says of releases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from dslint.model.trainerargs import class_of
from dslint.parse import cst

if TYPE_CHECKING:
    from dslint.rules.scriptcontext import ScriptContext

_ASKS = re.compile(r"version|signature|hasattr|parameters|fields|TRANSFORMERS", re.I)
_CAUGHT = re.compile("TypeError|AttributeError|Exception")
_OTHER = re.compile(r"\b(?:TF|Flax)[A-Z]\w+|modeling_(?:tf|flax)_")
_MOST_STEPS = 4


class TrainerClasses:
    """Answers which class takes the arguments of a call."""

    def __init__(self, ctx: ScriptContext) -> None:
        self._ctx = ctx
        self._names = ctx.bindings

    def owner(self, call: cst.Call) -> tuple[tuple[str, str] | None, set[str]]:
        """The class of the table that takes the arguments, and the fields that subclasses of the file add."""
        name = self._ctx.qualified_name(call.func)
        if name is not None:
            return class_of(name), set()
        plain = self._ctx.plain(call)
        func = plain.func if isinstance(plain, ast.Call) else None
        local: ast.ClassDef | None = None
        if isinstance(func, ast.Name):
            local = self._names.class_of(func)
            if local is not None and _makes_itself(local):
                return None, set()
        elif isinstance(func, ast.Attribute) and func.attr == "__init__" and _is_super(func.value):
            local = self._names.class_around(func)
        return self._base(local) if local is not None else (None, set())

    def _base(self, local: ast.ClassDef) -> tuple[tuple[str, str] | None, set[str]]:
        """The nearest class of the table above one of the file, when nothing unknown stands between."""
        added = _fields(local)
        for base in self._names.bases(local.name):
            between = self._names.class_named(base) if "." not in base else None
            if between is None:
                return class_of(base), added
            if _makes_itself(between):
                return None, added
            added |= _fields(between)
        return None, added

    def any_adds(self, name: str) -> bool:
        """Some class of the file has a field of that name."""
        return any(name in _fields(node) for node in ast.walk(self._names.tree) if isinstance(node, ast.ClassDef))

    def asks_for_release(self, node: cst.CSTNode) -> bool:
        """A test of the version, or a handler of the `TypeError`, stands around the call."""
        inner = node
        for outer in self._ctx.parents(node):
            if isinstance(outer, cst.If | cst.IfExp) and inner is not outer.test:
                if self._asks(outer.test):
                    return True
            elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
                if self._asks(outer.left):
                    return True
            elif isinstance(outer, cst.Try) and inner is outer.body:
                caught = {"" if h.type is None else self._ctx.text(h.type) for h in outer.handlers if not _raises(h)}
                if any(not c or _CAUGHT.search(c) for c in caught):
                    return True
            inner = outer
        return False

    def _asks(self, test: cst.BaseExpression) -> bool:
        """A test, or what its variables were given, speaks of releases."""
        plain = self._ctx.plain(test)
        pending: list[tuple[ast.AST, int]] = [(plain, 0)] if plain is not None else []
        while pending:
            node, steps = pending.pop()
            if _ASKS.search(ast.unparse(node)):
                return True
            inner = (n for n in ast.walk(node) if isinstance(n, ast.Name)) if steps < _MOST_STEPS else iter(())
            pending += [(b.value, steps + 1) for n in inner for b in self._names.bindings(n) if b.value is not None]
            if steps < _MOST_STEPS:
                pending += [(deciding, steps + 1) for deciding in self._elsewhere(node)]
        return False

    def _elsewhere(self, test: ast.AST) -> Iterator[ast.expr]:
        """What functions of the file return that a test calls, and the tests that set its flags."""
        called = {n.func.id for n in ast.walk(test) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
        for node in ast.walk(self._names.tree):
            if isinstance(node, ast.FunctionDef) and node.name in called:
                yield from (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None)
            elif isinstance(node, ast.If):
                given = (t for s in node.body if isinstance(s, ast.Assign) for t in s.targets)
                if any(isinstance(t, ast.Name) and t.id in names for t in given):
                    yield node.test

    def states_release(self, library: str) -> bool:
        """The file itself asks for releases up to one: `require_version("trl>=0.8.6,<=0.9.6")`, or imports flax.

        What it imports of flax or TensorFlow, transformers 5.0 removed.
        """
        if library == "transformers" and self._is_of_other_framework:
            return True
        pin = re.compile(rf"\s*{library}\s*(?:[><]=?|==|~=|!=)")
        for node in ast.walk(self._names.tree):
            is_asked = isinstance(node, ast.Call) and bool(node.args) and self._names.called(node) == "require_version"
            if is_asked and isinstance(node, ast.Call) and not isinstance(node.args[0], ast.Constant):
                return True  # for all that is known
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and library in text and pin.match(text) and re.search(r"<|==|~=", text):
                return True
        return False

    @cached_property
    def _is_of_other_framework(self) -> bool:
        """The file imports flax or the TensorFlow and Flax classes of transformers, which 5.0 removed altogether."""
        for home, names in _imports(self._names.tree):
            top = home.partition(".")[0]
            if top in ("flax", "tensorflow") or (top == "transformers" and _OTHER.search(f"{home} {names}")):
                return True
        return False


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", " ".join(alias.name for alias in node.names)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _fields(node: ast.ClassDef) -> set[str]:
    """The fields that a dataclass of the file adds."""
    return {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}


def _makes_itself(node: ast.ClassDef) -> bool:
    """The class has an `__init__` of its own."""
    return any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)


def _raises(handler: cst.ExceptHandler) -> bool:
    """The error that was caught goes on."""
    last = handler.body.body[-1] if handler.body.body else None
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) and last.body else None
    return isinstance(small, cst.Raise) and small.exc is None
