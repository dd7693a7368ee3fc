"""Which ranks an expression lets through."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import libcst as cst

from dslint.model.script.names import Names, dotted, last_name


class Ranks(Enum):
    """A set of ranks, as coarse as the rules need it.

    ``MAIN``: rank 0 (of the job or of each node). ``OTHERS``: all but that one. ``ALL``: no restriction is known.
    ``NONE``: no rank of a distributed run ("not distributed" tests).
    """

    ALL = "all"
    MAIN = "main"
    OTHERS = "others"
    NONE = "none"

    def __and__(self, other: Ranks) -> Ranks:
        """The ranks in both sets."""
        if self is other or other is Ranks.ALL:
            return self
        return other if self is Ranks.ALL else Ranks.NONE

    def __or__(self, other: Ranks) -> Ranks:
        """The ranks in either set."""
        if self is other or other is Ranks.NONE:
            return self
        return other if self is Ranks.NONE else Ranks.ALL


Branches = tuple[Ranks, Ranks]  # the ranks for which a test is true, and those for which it is false
_ANY: Branches = (Ranks.ALL, Ranks.ALL)
_MAIN: Branches = (Ranks.MAIN, Ranks.OTHERS)
_DISTRIBUTED: Branches = (Ranks.ALL, Ranks.NONE)
_SINGLE: Branches = (Ranks.NONE, Ranks.ALL)

# The rank of the process in the job or node. Ranks within a subgroup (``tp_rank``) and LoRA ranks are others.
_RANK_NAMES = frozenset(
    {
        *("rank", "local_rank", "global_rank", "process_index", "local_process_index", "world_rank", "proc_rank"),
        *("ddp_rank", "ddp_local_rank", "dist_rank", "my_rank", "cur_rank", "current_rank", "this_rank", "rank_id"),
        *("process_rank", "local_rank_id", "global_rank_id"),
    }
)
_RANK_CALLS = frozenset({"get_rank", "get_local_rank", "get_global_rank", "get_process_index"})
_RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"})
_MAIN_NAMES = frozenset(
    {
        *(
            "is_main_process",
            "is_local_main_process",
            "is_world_process_zero",
            "is_local_process_zero",
            "is_global_zero",
        ),
        *("is_rank_0", "is_rank0", "is_rank_zero", "is_master", "is_master_process", "is_local_master", "is_main_rank"),
        *("is_local_rank_0", "is_world_main_process", "is_first_rank", "is_node_main_process", "is_main"),
    }
)
_DISTRIBUTED_NAMES = frozenset(
    {
        *(
            "is_initialized",
            "is_dist_initialized",
            "is_dist_avail_and_initialized",
            "is_distributed",
            "is_dist",
            "use_ddp",
        ),
        *("distributed", "is_available", "use_distributed", "is_distributed_mode", "is_parallel", "is_ddp"),
    }
)
_WORLD_NAMES = frozenset({"world_size", "num_processes", "n_processes", "num_replicas", "n_gpu", "num_gpus", "ngpus"})
_WORLD_CALLS = frozenset({"get_world_size", "get_num_processes"})
_SIZES = frozenset({"world_size", "num_processes"})
_MAX_ALIASES = 4


class RankExpressions:
    """Reads tests of one module."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def branches(self, test: cst.BaseExpression, depth: int = 0) -> Branches:
        """The ranks that a test sends into its true and into its false branch."""
        if depth > _MAX_ALIASES:
            return _ANY
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            yes, no = self.branches(test.expression, depth)
            return no, yes
        if isinstance(test, cst.BooleanOperation):
            left, right = self.branches(test.left, depth), self.branches(test.right, depth)
            if isinstance(test.operator, cst.And):
                return left[0] & right[0], left[1] | right[1]
            return left[0] | right[0], left[1] & right[1]
        if isinstance(test, cst.Comparison):
            return self._comparison(test)
        if isinstance(test, cst.NamedExpr):
            return self.branches(test.value, depth)
        return self._truth(test, depth)

    def is_rank(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is the rank of the process."""
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.Call):
            return self._is_rank_call(node, depth)
        if isinstance(node, cst.Subscript):
            return _is_environ(node.value) and _subscript_text(node) in _RANK_VARIABLES
        if isinstance(node, cst.Attribute):
            return node.attr.value.lower() in _RANK_NAMES
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            if value is not None and self.is_rank(value, depth + 1):
                return True
            return node.value.lower() in _RANK_NAMES
        return False

    def is_world_size(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is the number of processes of the job."""
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.Call):
            name = last_name(node.func)
            if name in _WORLD_CALLS:
                return not node.args
            if name == "int" and node.args:
                return self.is_world_size(node.args[0].value, depth + 1)
            return _environ_variable(node) == "WORLD_SIZE"
        if isinstance(node, cst.Subscript):
            return _is_environ(node.value) and _subscript_text(node) == "WORLD_SIZE"
        if isinstance(node, cst.Attribute):
            return node.attr.value.lower() in _WORLD_NAMES
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            if value is not None and self.is_world_size(value, depth + 1):
                return True
            return node.value.lower() in _WORLD_NAMES
        return False

    def _is_rank_call(self, node: cst.Call, depth: int) -> bool:
        name = last_name(node.func)
        if name in _RANK_CALLS:
            return not node.args  # ``get_rank(group)`` is the rank within a subgroup
        if name == "int" and len(node.args) == 1:
            return self.is_rank(node.args[0].value, depth + 1)
        return _environ_variable(node) in _RANK_VARIABLES

    def _truth(self, node: cst.BaseExpression, depth: int) -> Branches:
        """A test that is a value: ``is_main``, ``args.should_save``, ``trainer.is_world_process_zero()``, ``rank``."""
        called = node.func if isinstance(node, cst.Call) else node
        name = last_name(called)
        if name in _MAIN_NAMES and not (isinstance(node, cst.Call) and node.args):
            return _MAIN
        if name == "should_save" and isinstance(called, cst.Attribute):
            # ``state.should_save`` and ``control.should_save`` are the same on every rank.
            return _MAIN if last_name(called.value).endswith("args") else _ANY
        if name in _DISTRIBUTED_NAMES:
            return _DISTRIBUTED
        if not isinstance(node, cst.Call):
            value = self._names.single_value(node)
            if value is not None:
                return self.branches(value, depth + 1)
            return (Ranks.OTHERS, Ranks.MAIN) if self.is_rank(node) else _ANY
        function = self._names.local_function(node)
        returned = _returned(function) if function is not None else None
        return self.branches(returned, depth + 1) if returned is not None else _ANY

    def _comparison(self, node: cst.Comparison) -> Branches:
        if len(node.comparisons) != 1:
            return _ANY
        left, operator, right = node.left, node.comparisons[0].operator, node.comparisons[0].comparator
        if isinstance(operator, cst.In | cst.NotIn):
            result = self._membership(left, right)
            return result if isinstance(operator, cst.In) else (result[1], result[0])
        number, subject, flipped = _number(right), left, False
        if number is None:
            number, subject, flipped = _number(left), right, True
        if number is None:
            return self._flag_comparison(left, operator, right)
        sign = _SIGNS.get(type(operator), "")
        sign = _FLIPPED.get(sign, sign) if flipped else sign
        if self._is_rank_modulo(subject):
            return _by_sign(sign, number) if sign in ("==", "!=") and number == 0 else _ANY
        if self.is_rank(subject):
            return _by_sign(sign, number)
        if last_name(subject).lower() in _SIZES or (
            isinstance(subject, cst.Call) and last_name(subject.func) in _WORLD_CALLS and not subject.args
        ):
            return _BY_SIZE.get((sign, number), _ANY)
        return _ANY

    def _flag_comparison(
        self, left: cst.BaseExpression, operator: cst.BaseCompOp, right: cst.BaseExpression
    ) -> Branches:
        """``is_main is True``, ``is_main == False``."""
        if isinstance(right, cst.Name) and right.value in ("True", "False"):
            yes, no = self.branches(left, 1) if not isinstance(left, cst.Comparison) else _ANY
            positive = isinstance(operator, cst.Is | cst.Equal) == (right.value == "True")
            return (yes, no) if positive else (no, yes)
        return _ANY

    def _is_rank_modulo(self, node: cst.BaseExpression) -> bool:
        """``rank % gpus_per_node``: zero on one rank of each node."""
        return (
            isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo) and self.is_rank(node.left)
        )

    def _membership(self, left: cst.BaseExpression, right: cst.BaseExpression) -> Branches:
        if not (isinstance(right, cst.Tuple | cst.List | cst.Set) and self.is_rank(left)):
            return _ANY
        numbers = {_number(e.value) for e in right.elements}
        return _MAIN if 0 in numbers and numbers <= {-1, 0} else _ANY


_SIGNS: dict[type[cst.BaseCompOp], str] = {
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.Is: "==",
    cst.IsNot: "!=",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BY_NUMBER: dict[tuple[str, int], Branches] = {
    ("==", 0): _MAIN,
    ("<=", 0): _MAIN,
    ("<", 1): _MAIN,
    ("!=", 0): (Ranks.OTHERS, Ranks.MAIN),
    (">", 0): (Ranks.OTHERS, Ranks.MAIN),
    (">=", 1): (Ranks.OTHERS, Ranks.MAIN),
    # ``-1`` means "not distributed", the same on every rank.
    ("==", -1): _SINGLE,
    ("<", 0): _SINGLE,
    ("<=", -1): _SINGLE,
    ("!=", -1): _DISTRIBUTED,
    (">=", 0): _DISTRIBUTED,
    (">", -1): _DISTRIBUTED,
}
_BY_SIZE: dict[tuple[str, int], Branches] = {
    (">", 1): _DISTRIBUTED,
    (">=", 2): _DISTRIBUTED,
    ("!=", 1): _DISTRIBUTED,
    ("==", 1): _SINGLE,
    ("<=", 1): _SINGLE,
    ("<", 2): _SINGLE,
}


def _by_sign(sign: str, number: int) -> Branches:
    return _BY_NUMBER.get((sign, number), _ANY)


def _number(node: cst.BaseExpression) -> int | None:
    """An integer literal, also as text (``os.environ["RANK"] == "0"``)."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = _number(node.expression)
        return None if inner is None else -inner
    if isinstance(node, cst.Integer):
        return int(node.value) if node.value.isdecimal() else None
    if isinstance(node, cst.SimpleString):
        text = node.evaluated_value
        return int(text) if isinstance(text, str) and text in ("0", "-1", "1") else None
    return None


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
    return _text(index.value) if isinstance(index, cst.Index) else ""


def _text(node: cst.BaseExpression) -> str:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""


def _returned(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """The expression of a function that does nothing but return it (after a docstring)."""
    body: Sequence[cst.CSTNode] = function.body.body
    small = [s for line in body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    if len(small) != len(body) and isinstance(function.body, cst.IndentedBlock):
        return None
    rest = [s for s in small if not (isinstance(s, cst.Expr) and isinstance(s.value, cst.SimpleString))]
    if len(rest) == 1 and isinstance(rest[0], cst.Return):
        return rest[0].value
    return None
