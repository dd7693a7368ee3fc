"""Tests that ask for the ZeRO stage: ``if args.zero_stage == 3``, ``if is_deepspeed_zero3_enabled()``, ...

What a test says is a pair: the stages for which it can be true, and those for which it can be false. A run without
DeepSpeed counts as stage 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from dslint.model.script.behind import question, wording
from dslint.model.script.dotted import is_none, last_name
from dslint.model.script.names import Names

Stages = frozenset[int]
Outcome = tuple[Stages, Stages]

ALL: Stages = frozenset({0, 1, 2, 3})
ZERO3: Stages = frozenset({3})
_NOT_3 = ALL - ZERO3
_OFF: Stages = frozenset({0})
_NOTHING: Outcome = (ALL, ALL)
_MAX_STEPS = 6

# ``args.zero_stage``, ``engine.zero_optimization_stage()``; a bare ``stage`` may be a phase of the training.
_STAGE = re.compile(r"(?:ds_|deepspeed_)?zero_(?:optimization_)?stage$|^(?:ds|deepspeed)_stage$|^zero_?stage$", re.I)
# ``is_deepspeed_zero3_enabled()``, ``self.is_zero3``, ``zero_stage_3``.
_IS_ZERO3 = re.compile(
    r"^(?:is_|use_|using_)?_*(?:(?:ds|deepspeed)_)?z(?:ero)?_?(?:stage_?)?3(?:_enabled|_model)?$", re.I
)
_PARTITIONS = frozenset({"zero_optimization_partition_weights"})
# DeepSpeed gives these attributes to the parameters that it partitions.
_PARTITIONED = frozenset({"ds_id", "ds_tensor", "ds_status", "ds_shape", "ds_numel", "ds_process_group"})
_USES_DEEPSPEED = re.compile(r"^(?:is_|use_|using_|_)*(?:deepspeed|ds)(?:_enabled|_config|_plugin)?$", re.I)
# A test with such a word may ask for the stage in a way that is not understood.
_MAYBE = re.compile(
    r"(?<!process_)(?<!rank_)(?<!rank)(?<!global_)zero(?!_grad|s)|(?<![a-z])stage|fsdp|shard|z3|deepspeed|gather|partition",
    re.I,
)
_COMPARE: dict[type[cst.BaseCompOp], Callable[[int, int], bool]] = {
    cst.Equal: int.__eq__,
    cst.NotEqual: int.__ne__,
    cst.Is: int.__eq__,
    cst.IsNot: int.__ne__,
    cst.LessThan: int.__lt__,
    cst.LessThanEqual: int.__le__,
    cst.GreaterThan: int.__gt__,
    cst.GreaterThanEqual: int.__ge__,
}
_TURNED: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.Equal: cst.Equal,
    cst.NotEqual: cst.NotEqual,
    cst.LessThan: cst.GreaterThan,
    cst.LessThanEqual: cst.GreaterThanEqual,
    cst.GreaterThan: cst.LessThan,
    cst.GreaterThanEqual: cst.LessThanEqual,
}


class StageTests:
    """Reads the tests of one module."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def outcome(self, test: cst.BaseExpression) -> Outcome | None:
        """What a test says about the stage; ``None`` when it may ask for it in a way that is not understood."""
        return self._outcome(test, 0)

    def _outcome(self, test: cst.BaseExpression, steps: int) -> Outcome | None:
        if steps > _MAX_STEPS:
            return None
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            found = self._outcome(test.expression, steps + 1)
            return found and (found[1], found[0])
        if isinstance(test, cst.BooleanOperation):
            return self._both(test, steps)
        if isinstance(test, cst.Comparison):
            return self._behind(test, steps) or self._comparison(test)
        if isinstance(test, cst.Call):
            return self._call(test)
        if isinstance(test, cst.Name | cst.Attribute):
            return self._named(test, steps)
        if isinstance(test, cst.NamedExpr | cst.IfExp):
            return self._behind(test, steps) or self._other(test)
        return self._other(test)

    def _both(self, test: cst.BooleanOperation, steps: int) -> Outcome | None:
        left, right = self._outcome(test.left, steps + 1), self._outcome(test.right, steps + 1)
        if left is None or right is None:
            return None
        if isinstance(test.operator, cst.And):
            return left[0] & right[0], left[1] | right[1]
        return left[0] | right[0], left[1] & right[1]

    def _comparison(self, test: cst.Comparison) -> Outcome | None:
        if len(test.comparisons) != 1:
            return self._other(test)
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        if is_none(right) and _USES_DEEPSPEED.match(last_name(test.left)):
            # ``args.deepspeed is not None``
            uses, not_used = (ALL, _OFF), (_OFF, ALL)
            return not_used if isinstance(operator, cst.Is | cst.Equal) else uses
        if last_name(test.left) == "distributed_type" and last_name(right) == "DEEPSPEED":
            # ``accelerator.distributed_type == DistributedType.DEEPSPEED``
            return (ALL, _OFF) if isinstance(operator, cst.Equal | cst.Is) else (_OFF, ALL)
        left = test.left
        if type(operator) in _TURNED and _number(left) is not None:  # ``3 == stage``
            left, operator, right = right, _TURNED[type(operator)](), left
        if not _STAGE.search(_asked(left)):
            return self._other(test)
        if isinstance(right, cst.Tuple | cst.List | cst.Set) and isinstance(operator, cst.In | cst.NotIn):
            numbers = {_number(element.value) for element in right.elements}
            if None in numbers:
                return None
            among = frozenset(n for n in numbers if n is not None) & ALL
            return (among, ALL - among) if isinstance(operator, cst.In) else (ALL - among, among)
        compare, number = _COMPARE.get(type(operator)), _number(right)
        if compare is None or number is None:
            return None
        yes = frozenset(stage for stage in ALL if compare(stage, number))
        return yes, ALL - yes

    def _call(self, test: cst.Call) -> Outcome | None:
        name = self._names.called(test)
        if _IS_ZERO3.match(name) or name in _PARTITIONS:
            return ZERO3, _NOT_3
        if name == "hasattr" and len(test.args) == 2:
            attribute = test.args[1].value
            if isinstance(attribute, cst.SimpleString) and attribute.evaluated_value in _PARTITIONED:
                return ZERO3, _NOT_3
        if (
            name in ("hasattr", "getattr")
            and len(test.args) > 1
            and not isinstance(test.args[1].value, cst.SimpleString)
        ):
            return None
        if _USES_DEEPSPEED.match(name):
            return ALL, _OFF
        return self._returned(test) or self._other(test)

    def _returned(self, test: cst.Call) -> Outcome | None:
        """What a function of the file that only returns a test says."""
        function = self._names.local_function(test)
        lines = list(function.body.body) if function is not None else []
        small = lines[-1].body[-1] if lines and isinstance(lines[-1], cst.SimpleStatementLine) else None
        if len(lines) != 1 or not isinstance(small, cst.Return) or small.value is None:
            return None
        found = self._outcome(small.value, _MAX_STEPS - 1)
        return found if found != _NOTHING else None

    def _named(self, test: cst.Name | cst.Attribute, steps: int) -> Outcome | None:
        found = self._behind(test, steps)
        if found is not None and found != _NOTHING:
            return found
        name = last_name(test)
        if _IS_ZERO3.match(name):
            return ZERO3, _NOT_3
        if _STAGE.search(name):  # ``if args.zero_stage:``
            return ALL - _OFF, _OFF
        return (ALL, _OFF) if _USES_DEEPSPEED.match(name) else self._other(test)

    def _behind(self, test: cst.BaseExpression, steps: int) -> Outcome | None:
        asked, holds = question(self._names, test)
        if asked is test or not isinstance(
            asked, cst.Comparison | cst.Call | cst.BooleanOperation | cst.UnaryOperation | cst.Name | cst.Attribute
        ):
            return None
        found = self._outcome(asked, steps + 1)
        return found if found is None or holds else (found[1], found[0])

    def _other(self, test: cst.BaseExpression) -> Outcome | None:
        return None if _MAYBE.search(wording(self._names, test)) else _NOTHING


def _asked(node: cst.BaseExpression) -> str:
    """The name of what is compared: of an attribute, a call, or ``config["zero_stage"]``."""
    if isinstance(node, cst.Call):
        if (
            last_name(node.func) == "getattr"
            and len(node.args) > 1
            and isinstance(node.args[1].value, cst.SimpleString)
        ):
            return str(node.args[1].value.evaluated_value)
        if last_name(node.func) == "int" and len(node.args) == 1:
            return _asked(node.args[0].value)
        return last_name(node.func)
    if isinstance(node, cst.Subscript):
        return _path_of_keys(node)
    return last_name(node)


def _path_of_keys(node: cst.BaseExpression) -> str:
    """``config["zero_optimization"]["stage"]`` -> ``zero_optimization_stage``."""
    keys: list[str] = []
    while isinstance(node, cst.Subscript):
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if not (isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)):
            return ""
        keys.insert(0, str(index.value.evaluated_value))
        node = node.value
    return "_".join(keys)


def _number(node: cst.BaseExpression) -> int | None:
    return int(node.value) if isinstance(node, cst.Integer) and node.value.isdigit() else None
