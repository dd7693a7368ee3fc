"""Which expressions are the rank of the process, and which the number of processes."""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import dotted, last_name
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.ranks.rankwords import (
    RANK_CALLS,
    RANK_KEYS,
    RANK_NAMES,
    RANK_VARIABLES,
    WORLD_CALLS,
    WORLD_NAMES,
)

_PER_NODE = re.compile(r"gpu|device|node|local|nproc")
# What has a rank that is the size of a matrix: ``config.lora.rank``.
_LOW_RANK = re.compile(r"lora|adapter|peft|low_?rank|galore|svd", re.I)
_MAX_ALIASES = 4


class RankValues:
    """Recognises ranks and world sizes in one module, by name, by call, and by what a variable holds."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def is_rank(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is the rank of the process."""
        if depth > _MAX_ALIASES:
            return False
        if type(node) is cst.Call:
            return self._is_rank_call(node, depth)
        if type(node) is cst.NamedExpr:
            return self.is_rank(node.value, depth + 1)
        if type(node) is cst.Subscript:
            text = _subscript_text(node)
            return text in RANK_VARIABLES if _is_environ(node.value) else text in RANK_KEYS
        if isinstance(node, cst.Attribute):
            if _plain(node.attr.value) in RANK_NAMES:
                return not _is_of_matrix(node)
            found = self._names.attribute_bindings(node) or self._of_object(node)
            return self._holds_rank(found, depth) or self._is_property(node, depth)
        if isinstance(node, cst.Name):
            if node.value == "rank" and _is_of_matrix(self._names.single_value(node)):
                return False
            found = self._names.bindings(node.value, node)
            return (_plain(node.value) in RANK_NAMES or self._holds_rank(found, depth)) and not self.is_told(node)
        return False

    def is_told(self, node: cst.BaseExpression) -> bool:
        """A parameter that every call passes a constant for: ``load(path, rank=0)``, ``save(model, is_main=True)``.

        A function that is handed to others, such as ``mp.spawn``, is called with what nobody sees here.
        """
        found = self._names.bindings(node.value, node) if isinstance(node, cst.Name) else []
        param = found[0].node if len(found) == 1 else None
        given = self._names.callers.passed(param) if isinstance(param, cst.Param) else []
        if not given or not all(v is not None and _is_constant(v) for v in given):
            return False
        function = self._names.tree.function(param) if param is not None else None
        return function is not None and not self._is_handed_over(function)

    def _is_handed_over(self, function: cst.FunctionDef) -> bool:
        tree, name = self._names.tree, function.name
        uses = (n for n in tree.every(cst.Name) if n.value == name.value and n is not name)
        called = (tree.parent(u) for u in uses)
        return any(not (isinstance(c, cst.Call) and last_name(c.func) == name.value) for c in called)

    def _holds_rank(self, found: list[Binding], depth: int) -> bool:
        """Every value of a variable is the rank, or the number that stands for it without distribution."""
        if len(found) == 1 and isinstance(found[0].node, cst.Param):
            given = self._names.callers.passed(found[0].node)
            return bool(given) and all(v is not None and self.is_rank(v, depth + 1) for v in given)
        values = [b.value for b in found if b.kind == "assign" and b.value is not None]
        ranks = [v for v in values if number_of(v) is None]
        return bool(ranks) and len(values) == len(found) and all(self.is_rank(v, depth + 1) for v in ranks)

    def is_world_size(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is the number of processes of the job."""
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.Call):
            name = self._names.called(node)
            if name in WORLD_CALLS:
                return not node.args
            if name == "int" and node.args:
                return self.is_world_size(node.args[0].value, depth + 1)
            return _environ_variable(node) == "WORLD_SIZE"
        if type(node) is cst.Subscript:
            return _is_environ(node.value) and _subscript_text(node) == "WORLD_SIZE"
        if isinstance(node, cst.Attribute | cst.Name):
            value = self._names.single_value(node)
            if value is not None and self.is_world_size(value, depth + 1):
                return True
            return _plain(last_name(node)) in WORLD_NAMES or (
                isinstance(node, cst.Name) and self._gets_world_size(node, depth)
            )
        return False

    def _gets_world_size(self, name: cst.Name, depth: int) -> bool:
        """Every call of the function around passes the number of processes for the parameter."""
        found = self._names.bindings(name.value, name)
        param = found[0].node if len(found) == 1 else None
        given = self._names.callers.passed(param) if param is not None else []
        return bool(given) and all(v is not None and self.is_world_size(v, depth + 1) for v in given)

    def _is_rank_call(self, node: cst.Call, depth: int) -> bool:
        name = self._names.called(node)
        if name in RANK_CALLS:
            return all(a.star for a in node.args)  # ``get_rank(group)`` is the rank within a subgroup
        if name in ("int", "str") and len(node.args) == 1:
            return self.is_rank(node.args[0].value, depth + 1)
        if name == "getattr" and len(node.args) > 1:
            return _text(node.args[1].value).lower() in RANK_NAMES
        if _environ_variable(node) in RANK_VARIABLES:
            return True
        function = self._names.local_function(node) if not node.args else None
        return function is not None and self._returns_rank(function, depth)

    def _class_of(self, node: cst.BaseExpression) -> cst.ClassDef | None:
        """The class of this file of which an expression is an instance."""
        made = node if isinstance(node, cst.Call) else self._names.single_value(node)
        is_plain = isinstance(made, cst.Call) and isinstance(made.func, cst.Name)
        return self._names.local_class(made.func.value, node) if is_plain else None  # type: ignore[union-attr]

    def _of_object(self, node: cst.Attribute) -> list[Binding]:
        """What ``state.number`` is given in the class of ``state``."""
        owner = self._class_of(node.value)
        return self._names.class_attribute(owner, node.attr.value) if owner is not None else []

    def _is_property(self, node: cst.Attribute, depth: int) -> bool:
        owner = self._class_of(node.value)
        function = self._names.member(owner, node.attr.value) if owner is not None else self._names.function_named(node)
        if function is None or not any(last_name(d.decorator).endswith("property") for d in function.decorators):
            return False
        return self._returns_rank(function, depth)

    def _returns_rank(self, function: cst.FunctionDef, depth: int) -> bool:
        """All that a function of the file returns is the rank, or the number that stands for it."""
        values = [n.value for n in self._names.tree.own(function.body, cst.Return)]
        ranks = [v for v in values if v is not None and number_of(v) is None]
        return bool(ranks) and None not in values and all(self.is_rank(v, depth + 1) for v in ranks)

    def is_last(self, left: cst.BaseExpression, right: cst.BaseExpression) -> bool:
        """``rank == world_size - 1``."""
        if type(right) is not cst.BinaryOperation or type(right.operator) is not cst.Subtract:
            return False
        return number_of(right.right) == 1 and self.is_rank(left) and self.is_world_size(right.left)

    def is_local_rank(self, node: cst.BaseExpression) -> bool:
        """``rank % gpus_per_node``: zero on one rank of each node. The rest of another division may be a subgroup."""
        if not (type(node) is cst.BinaryOperation and type(node.operator) is cst.Modulo):
            return False
        divisor = node.right
        name = last_name(divisor.func if type(divisor) is cst.Call else divisor).lower()
        return self.is_rank(node.left) and (number_of(divisor) == 8 or _PER_NODE.search(name) is not None)


def _plain(name: str) -> str:
    """A name without the underscores of what is private: ``self._rank``."""
    return name.lstrip("_").lower()


def _is_constant(value: cst.BaseExpression) -> bool:
    return number_of(value) is not None or (isinstance(value, cst.Name) and value.value in ("True", "False"))


def _is_of_matrix(node: cst.BaseExpression | None) -> bool:
    """``config.lora.rank``: of an owner whose name says that its matrices have ranks."""
    is_rank = type(node) is cst.Attribute and node.attr.value == "rank"
    return type(node) is cst.Attribute and is_rank and _LOW_RANK.search(last_name(node.value)) is not None


def _is_environ(node: cst.BaseExpression) -> bool:
    return last_name(node) == "environ"


def _environ_variable(node: cst.Call) -> str:
    """The variable that ``os.environ.get("RANK", 0)`` or ``os.getenv("RANK")`` reads."""
    function = dotted(node.func) or ""
    if node.args and function.endswith(("environ.get", "getenv")):
        return _text(node.args[0].value)
    return ""


def _subscript_text(node: cst.Subscript) -> str:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return _text(index.value) if type(index) is cst.Index else ""


def _text(node: cst.BaseExpression) -> str:
    value = node.evaluated_value if type(node) is cst.SimpleString else ""
    return value if isinstance(value, str) else ""
