"""Calls of the classes around the Hugging Face Trainer: who takes the arguments, and what the file says of releases."""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.behind import wording
from dslint.model.script.dotted import is_super
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree
from dslint.model.trainerargs import class_of

_ASKS = re.compile(r"version|signature|hasattr|parameters|fields|TRANSFORMERS", re.I)


class TrainerClasses:
    """Answers which class takes the arguments of a call."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def owner(self, call: cst.Call) -> tuple[tuple[str, str] | None, set[str]]:
        """The class of the table that takes the arguments, and the fields that subclasses of the file add."""
        name = self._names.qualified(call.func)
        if name is not None:
            return class_of(name), set()
        local: cst.ClassDef | None = None
        if isinstance(call.func, cst.Name):
            local = self._names.local_class(call.func.value, call)
            if local is not None and _makes_itself(local):
                return None, set()
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "__init__" and is_super(call.func.value):
            found = self._tree.enclosing(call, cst.ClassDef)
            local = found if isinstance(found, cst.ClassDef) else None
        return self._base(local) if local is not None else (None, set())

    def _base(self, local: cst.ClassDef) -> tuple[tuple[str, str] | None, set[str]]:
        """The nearest class of the table above one of the file, when nothing unknown stands between."""
        added = _fields(local)
        for base in self._names.class_bases(local.name.value):
            between = self._names.local_class(base) if "." not in base else None
            if between is None:
                return class_of(base), added
            if _makes_itself(between):
                return None, added
            added |= _fields(between)
        return None, added

    def any_adds(self, name: str) -> bool:
        """Some class of the file has a field of that name."""
        return any(name in _fields(node) for node in self._tree.order if isinstance(node, cst.ClassDef))

    def asks_for_release(self, node: cst.CSTNode) -> bool:
        """A test of the version, or a handler of the `TypeError`, stands around the call."""
        inner = node
        for outer in self._tree.parents(node):
            if isinstance(outer, cst.If | cst.IfExp) and inner is not outer.test:
                if _ASKS.search(wording(self._names, outer.test)):
                    return True
            elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
                if _ASKS.search(wording(self._names, outer.left)):
                    return True
            elif isinstance(outer, cst.Try) and inner is outer.body:
                caught = {
                    "" if h.type is None else self._tree.text(h.type) for h in outer.handlers if not _raises_again(h)
                }
                if any(not c or re.search("TypeError|AttributeError|Exception", c) for c in caught):
                    return True
            inner = outer
        return False

    def states_release(self, library: str) -> bool:
        """The file itself asks for releases up to one: `require_version("trl>=0.8.6,<=0.9.6")`, or imports flax.

        What it imports of flax or TensorFlow, transformers 5.0 removed.
        """
        if library == "transformers" and self._is_of_other_framework():
            return True
        pin = re.compile(rf"\s*{library}\s*(?:[><]=?|==|~=|!=)")
        asked = (n for n in self._tree.every(cst.Call) if self._names.called(n) == "require_version" and n.args)
        if any(not isinstance(n.args[0].value, cst.SimpleString) for n in asked):
            return True  # for all that is known
        texts = self._tree.every(cst.SimpleString)
        values = (str(n.evaluated_value) for n in texts if library in n.value)
        return any(pin.match(value) and re.search(r"<|==|~=", value) for value in values)

    def _is_of_other_framework(self) -> bool:
        """The file imports flax or the TensorFlow and Flax classes of transformers, which 5.0 removed altogether."""
        for node in self._tree.some(cst.Import, cst.ImportFrom):
            text = self._tree.text(node)
            if re.match(r"(?:import|from) (?:flax|tensorflow)\b", text):
                return True
            if re.match(r"from transformers\b", text) and re.search(
                r"\b(?:TF|Flax)[A-Z]\w+|modeling_(?:tf|flax)_", text
            ):
                return True
        return False


def _fields(node: cst.ClassDef) -> set[str]:
    """The fields that a dataclass of the file adds."""
    lines = (line for line in node.body.body if isinstance(line, cst.SimpleStatementLine))
    small = (item for line in lines for item in line.body if isinstance(item, cst.AnnAssign))
    return {item.target.value for item in small if isinstance(item.target, cst.Name)}


def _makes_itself(node: cst.ClassDef) -> bool:
    """The class has an `__init__` of its own."""
    return any(isinstance(item, cst.FunctionDef) and item.name.value == "__init__" for item in node.body.body)


def _raises_again(handler: cst.ExceptHandler) -> bool:
    """The error that was caught goes on."""
    last = handler.body.body[-1] if handler.body.body else None
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) and last.body else None
    return isinstance(small, cst.Raise) and small.exc is None
