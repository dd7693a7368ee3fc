"""Tests that ask for the ZeRO stage: ``if args.zero_stage == 3``, ``if is_deepspeed_zero3_enabled()``, ...

What a test says is a pair: the stages for which it can be true, and those for which it can be false. A run without
DeepSpeed counts as stage 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from dslint.python.source import Module

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
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: int.__eq__,
    ast.NotEq: int.__ne__,
    ast.Is: int.__eq__,
    ast.IsNot: int.__ne__,
    ast.Lt: int.__lt__,
    ast.LtE: int.__le__,
    ast.Gt: int.__gt__,
    ast.GtE: int.__ge__,
}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class _Names:
    """What a module assigns, and what its functions return when they do nothing else."""

    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)
    values: dict[tuple[ast.AST | None, str], list[ast.expr | None]] = field(default_factory=dict)
    fields: dict[str, list[ast.expr]] = field(default_factory=dict)
    flags: dict[tuple[ast.AST | None, str], list[ast.expr]] = field(default_factory=dict)

    def around(self, line: int) -> ast.AST | None:
        """Return the innermost function around a line."""
        found = [f for f in self.functions if f.lineno <= line <= (f.end_lineno or 0)]
        return found[-1] if found else None

    def value(self, node: ast.expr) -> ast.expr | None:
        """Return the only thing that a name or a field of `self` gets."""
        if isinstance(node, ast.Name):
            scope = self.around(node.lineno)
            found = self.values.get((scope, node.id)) or self.values.get((None, node.id)) or []
            found = [value for value in found if not _is_none(value)] or found  # `x = None` before it gets its value
            return found[0] if len(found) == 1 else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            given = self.fields.get(node.attr, [])
            return given[0] if len(given) == 1 else None
        return None

    def flag(self, node: ast.expr) -> ast.expr | None:
        """Return the test that decides whether a name becomes True, where it is False before and nothing else."""
        key = (self.around(node.lineno), node.id) if isinstance(node, ast.Name) else None
        given = self.values.get(key, []) if key is not None else []
        found = self.flags.get(key, []) if key is not None else []
        truths = [_truth(value) for value in given if value is not None]
        return found[0] if len(given) == 2 and set(truths) == {True, False} and len(found) == 1 else None

    def returned(self, name: str) -> ast.expr | None:
        """Return what the only function of a name returns, where it does nothing else."""
        named = [f for f in self.functions if f.name == name]
        body = [s for s in named[0].body if not isinstance(s, ast.Expr)] if len(named) == 1 else []
        return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


@lru_cache(maxsize=256)
def _names_of(module: Module) -> _Names:
    found = _Names()
    pending: list[tuple[ast.AST, ast.AST | None]] = [(module.tree, None)]
    while pending:
        node, scope = pending.pop()
        if isinstance(node, _FUNCTIONS):
            found.functions.append(node)
            scope = node
            for given in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                found.values.setdefault((node, given.arg), []).append(None)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                _note(found, scope, target, node.value)
        elif isinstance(node, ast.If) and not node.orelse:
            for inner in node.body:
                if isinstance(inner, ast.Assign) and _truth(inner.value) is True:
                    names = [t.id for t in inner.targets if isinstance(t, ast.Name)]
                    found.flags.update(
                        {(scope, name): [*found.flags.get((scope, name), []), node.test] for name in names}
                    )
        pending.extend((child, scope) for child in ast.iter_child_nodes(node))
    found.functions.sort(key=lambda f: (f.lineno, -(f.end_lineno or 0)))
    return found


def _note(found: _Names, scope: ast.AST | None, target: ast.expr, value: ast.expr | None) -> None:
    if isinstance(target, ast.Name):
        found.values.setdefault((scope, target.id), []).append(value)
    elif isinstance(target, ast.Attribute) and value is not None:
        found.fields.setdefault(target.attr, []).append(value)


def value_behind(module: Module, node: ast.expr) -> ast.expr | None:
    """Return the only thing that a name or a field of `self` gets in its module."""
    return _names_of(module).value(node)


def value_of_key(module: Module, node: ast.expr, key: str) -> ast.expr | None:
    """Return what a dictionary that the code writes out, or the only one that a name gets, holds under a key."""
    made = node if isinstance(node, ast.Dict | ast.Call) else value_behind(module, node)
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "dict":
        found = [k.value for k in made.keywords if k.arg == key]
    elif isinstance(made, ast.Dict) and None not in made.keys:
        named = zip(made.keys, made.values, strict=True)
        found = [value for name, value in named if isinstance(name, ast.Constant) and name.value == key]
    else:
        return None
    return found[-1] if found else None


def expressions_behind(module: Module, node: ast.AST, steps: int = 3) -> Iterator[ast.AST]:
    """Yield the parts of an expression, and of what its names hold."""
    for part in ast.walk(node):
        yield part
        behind = value_behind(module, part) if isinstance(part, ast.Name) and steps else None
        if behind is not None:
            yield from expressions_behind(module, behind, steps - 1)


def outcome(module: Module, test: ast.expr, steps: int = 0) -> Outcome | None:
    """Return what a test says about the stage; ``None`` when it may ask for it in a way that is not understood."""
    if steps > _MAX_STEPS:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found = outcome(module, test.operand, steps + 1)
        return found and (found[1], found[0])
    if isinstance(test, ast.NamedExpr):
        return outcome(module, test.value, steps + 1)
    if isinstance(test, ast.BoolOp):
        return _both(module, test, steps)
    same = _same(test)
    if same is not None:
        found = outcome(module, same[0], steps + 1)
        return found and (found if same[1] else (found[1], found[0]))
    if isinstance(test, ast.Compare):
        return _comparison(module, test)
    if isinstance(test, ast.Call):
        return _call(module, test, steps)
    if isinstance(test, ast.Name | ast.Attribute):
        return _named(module, test, steps)
    return _other(module, test)


def _same(test: ast.expr) -> tuple[ast.expr, bool] | None:
    """Return what a test asks in other words, and whether it means that: `x is True`, `True if x else False`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.Eq):
        side = _truth(test.comparators[0])
        return (test.left, side) if side is not None else None
    if isinstance(test, ast.IfExp):
        sides = _truth(test.body), _truth(test.orelse)
        return (test.test, bool(sides[0])) if set(sides) == {True, False} else None
    return None


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _truth(node: ast.expr) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _both(module: Module, test: ast.BoolOp, steps: int) -> Outcome | None:
    parts = [outcome(module, value, steps + 1) for value in test.values]
    yes, no = (ALL, frozenset[int]()) if isinstance(test.op, ast.And) else (frozenset[int](), ALL)
    for part in parts:
        if part is None:
            return None
        yes, no = (yes & part[0], no | part[1]) if isinstance(test.op, ast.And) else (yes | part[0], no & part[1])
    return yes, no


def _comparison(module: Module, test: ast.Compare) -> Outcome | None:
    if len(test.ops) != 1:
        return _other(module, test)
    left, operator, right = test.left, type(test.ops[0]), test.comparators[0]
    is_none = isinstance(right, ast.Constant) and right.value is None
    if is_none and _USES_DEEPSPEED.match(_last(left)):  # ``args.deepspeed is not None``
        return (_OFF, ALL) if operator in (ast.Is, ast.Eq) else (ALL, _OFF)
    if _last(left) == "distributed_type" and _last(right) == "DEEPSPEED":
        return (ALL, _OFF) if operator in (ast.Eq, ast.Is) else (_OFF, ALL)
    if operator in _TURNED and _number(left) is not None:  # ``3 == stage``
        left, operator, right = right, _TURNED[operator], left
    if not _STAGE.search(_asked(left)):
        return _other(module, test)
    if isinstance(right, ast.Tuple | ast.List | ast.Set) and operator in (ast.In, ast.NotIn):
        numbers = {_number(element) for element in right.elts}
        if None in numbers:
            return None
        among = frozenset(n for n in numbers if n is not None) & ALL
        return (among, ALL - among) if operator is ast.In else (ALL - among, among)
    compare, number = _COMPARE.get(operator), _number(right)
    if compare is None or number is None:
        return None
    yes = frozenset(stage for stage in ALL if compare(stage, number))
    return yes, ALL - yes


def _call(module: Module, test: ast.Call, steps: int) -> Outcome | None:
    name = _last(test.func)
    if _IS_ZERO3.match(name) or name in _PARTITIONS:
        return ZERO3, _NOT_3
    if name in ("hasattr", "getattr") and len(test.args) > 1:
        asked = test.args[1]
        if not isinstance(asked, ast.Constant):
            return None
        if name == "hasattr" and asked.value in _PARTITIONED:
            return ZERO3, _NOT_3
        if name == "getattr" and _STAGE.search(str(asked.value)):
            return ALL - _OFF, _OFF
    if _USES_DEEPSPEED.match(name):
        return ALL, _OFF
    returned = _names_of(module).returned(name)
    found = outcome(module, returned, steps + 2) if returned is not None else _NOTHING
    return found if found != _NOTHING else _other(module, test)


def _named(module: Module, test: ast.Name | ast.Attribute, steps: int) -> Outcome | None:
    behind = _names_of(module).value(test) or _names_of(module).flag(test)
    if isinstance(behind, ast.Compare | ast.Call | ast.BoolOp | ast.UnaryOp | ast.Name | ast.Attribute | ast.IfExp):
        found = outcome(module, behind, steps + 1)
        if found is not None and found != _NOTHING:
            return found
    name = _last(test)
    if _IS_ZERO3.match(name):
        return ZERO3, _NOT_3
    if _STAGE.search(name):  # ``if args.zero_stage:``
        return ALL - _OFF, _OFF
    return (ALL, _OFF) if _USES_DEEPSPEED.match(name) else _other(module, test)


def _other(module: Module, test: ast.expr) -> Outcome | None:
    names = _names_of(module)
    texts = [module.text(test)]
    owners = {part.value for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    for part in ast.walk(test):
        is_asked = isinstance(part, ast.Name | ast.Attribute) and part not in owners
        behind = names.value(part) if is_asked and isinstance(part, ast.expr) else None
        behind = names.returned(_last(part.func)) if isinstance(part, ast.Call) else behind
        texts.append(module.text(behind) if behind is not None else "")
    return None if _MAYBE.search("\n".join(texts)) else _NOTHING


def _asked(node: ast.expr) -> str:
    """Return the name of what is compared: of an attribute, a call, or ``config["zero_stage"]``."""
    if isinstance(node, ast.Call):
        name = _last(node.func)
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            return str(node.args[1].value)
        return _asked(node.args[0]) if name == "int" and len(node.args) == 1 else name
    keys: list[str] = []
    while isinstance(node, ast.Subscript):
        if not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)):
            return ""
        keys.insert(0, node.slice.value)
        node = node.value
    return "_".join(keys) if keys else _last(node)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _number(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
