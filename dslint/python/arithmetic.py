"""Operations on numbers, texts and tensors, and the truth of values."""

from __future__ import annotations

import ast

from dslint.python import (
    containers,
    dictionaries,
    expressions,
    formulas,
    memory,
    paths,
    ragged,
    ranknames,
    setorders,
    shares,
    texts,
)
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.operators import BINARY, UNARY, apply
from dslint.python.special import binary_method, unary_method
from dslint.python.values import (
    OPAQUE,
    Const,
    Instance,
    PerRank,
    Unknown,
    Value,
    const,
)
from dslint.python.varies import LOST, RANKED, WORLD


def binary(m: Machine, op: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Value:
    """Return the value of an arithmetic operation."""
    shares.note_operation(m, op, left, right, node)
    right = ranknames.divisor(m, left, right, node) if op is ast.Mod else right
    found = apply(m.worlds, BINARY[op], (left, right)) if op in BINARY else None
    if found is not None:
        return found
    own = binary_method(m, op, left, right, node)
    if own is not None:
        return own
    joined = containers.concatenated(m, op, left, right, node) or dictionaries.merged(m, op, left, right, node)
    joined = joined or dictionaries.views_combined(op, left, right) or setorders.combined(m, op, left, right, node)
    if joined is not None:
        return joined
    if op is ast.Div:
        path = paths.divided(m, left, right, node)
        if path is not None:
            return path
    kinds = {_scalar(m, left), _scalar(m, right)}
    if op is ast.Mod and "builtins.str" in kinds:
        text = texts.by_percent(m, left, right, node)
        if text is not None:
            return text
    if op is ast.Add and "builtins.str" in kinds and kinds <= {"builtins.str", None}:
        return paths.joined((left, right), scalar(m, (left, right), "builtins.str"), node=node, between="")
    if None not in kinds:
        type_ = _result_type(op, kinds, left, right)
        return scalar(m, (left, right), type_, (op, _numbers(left, right)))
    made = m.thing(node, "result of an operation", (left, right), _tensor(m, left, right))
    memory.computed(m, (left, right), made, node)
    terms = _numbers(left, right)
    if terms is not None:
        m.computed[made.number] = (op, terms)
    if op is ast.Div or op is ast.Mult:
        _division(m, op, left, right, made, node)
    # A product of matrices has other dimensions.
    return made if op is ast.MatMult else ragged.computed(m, (left, right), made)


def _division(m: Machine, op: type[ast.operator], left: Value, right: Value, made: Value, node: ast.AST) -> None:
    """Note that a result of a wrapped model is divided: `loss / n`, `loss * (1 / n)`, `1 / n * loss`."""
    if op is ast.Mult:
        parts = [(left, inverse(right)), (right, inverse(left))]
        left, by = next(((value, n) for value, n in parts if n is not None), (left, None))
    else:
        by = right
    if by is None or not m.made_by(left):
        return
    event = Event("operator.truediv", frozenset(("divides",)), node, m.frame.module, left, {"by": by}, made,
                  m.lanes, m.control)  # fmt: skip
    event.snapshot = {"self": (m.varies(left), m.shape(left), m.made_by(left))}
    m.events.append(event)


def inverse(value: Value) -> Value | None:
    """Return `n` of a value that is `1 / n`."""
    number = value.number
    if not isinstance(number, tuple) or len(number) != 2 or number[0] not in (ast.Div, BINARY[ast.Div]):
        return None
    parts = number[1]
    if not isinstance(parts, tuple) or len(parts) != 2 or parts[0] not in (Const(1), Const(1.0)):
        return None
    inner = parts[1]
    if isinstance(inner, Const | PerRank | Instance | Unknown):
        return Value(frozenset((inner,)))
    return Value(frozenset((Unknown(OPAQUE, "a number", "builtins.int"),)), 0, 0, frozenset(), inner)


def scalar(m: Machine, operands: tuple[Value, ...], type_: str, number: object = None) -> Value:
    """Return an unknown number or text that is the same on all ranks when its operands are."""
    varies = shape = 0
    made_by: frozenset[Instance] = frozenset()
    origin = None
    for operand in operands:
        varies |= m.varies(operand)
        made_by |= m.made_by(operand)
        origin = origin or m.origin(operand)
    atom = Unknown(OPAQUE, "computed from unknown values", type_)
    return Value(frozenset((atom,)), varies, shape, made_by, number, origin)


def _numbers(*values: Value) -> object:
    found = tuple(v.number if v.number is not None else v.single for v in values)
    return None if None in found else found


def _scalar(m: Machine, value: Value) -> str | None:
    """Return the type of a value that is a number or text for certain."""
    kinds = set()
    for atom in value.atoms:
        if isinstance(atom, Const):
            kinds.add(f"builtins.{atom.kind.__name__}")
        elif isinstance(atom, PerRank):
            kinds.add("builtins.int")
        elif isinstance(atom, Unknown) and atom.type in expressions._SCALARS:
            kinds.add(atom.type)
        else:
            return None
    return kinds.pop() if len(kinds) == 1 else ("builtins.float" if kinds <= set(expressions._SCALARS[:2]) else None)


def _result_type(op: type[ast.operator], kinds: set[str | None], left: Value, right: Value) -> str:
    if "builtins.str" in kinds:
        return "builtins.str"
    if op is ast.Div or "builtins.float" in kinds:
        return "builtins.float"
    return "builtins.int"


def _tensor(m: Machine, *values: Value) -> str:
    """Return the class of the result of an operation: that of its operand with a known library class."""
    for value in values:
        for atom in value.atoms:
            if (
                isinstance(atom, Instance)
                and isinstance(atom.cls, str)
                and atom.cls in ("torch.Tensor", "numpy.ndarray")
            ):
                return atom.cls
    return ""


def _binop(m: Machine, node: ast.BinOp) -> Value:
    left = expressions.evaluate(m, node.left)
    return binary(m, type(node.op), left, expressions.evaluate(m, node.right), node)


def _unaryop(m: Machine, node: ast.UnaryOp) -> Value:
    operand = expressions.evaluate(m, node.operand)
    if isinstance(node.op, ast.Not):
        return negated(m, operand)
    found = apply(m.worlds, UNARY[type(node.op)], (operand,))
    if found is not None:
        return found
    own = unary_method(m, type(node.op), operand, node)
    if own is not None:
        return own
    kind = _scalar(m, operand)
    if kind is not None:
        return scalar(m, (operand,), kind, (type(node.op), _numbers(operand)))
    return ragged.computed(m, (operand,), m.thing(node, "result of an operation", (operand,), _tensor(m, operand)))


def negated(m: Machine, operand: Value) -> Value:
    """Return `not operand`."""
    return truth_value(m, operand, negate=True)


def truth_value(m: Machine, operand: Value, *, negate: bool = False) -> Value:
    """Return `bool(operand)` or its opposite, with a constant for each lane where it is decided."""
    lanes = m.lanes
    true, false, varies = m.truth(operand)
    number = None if operand.number is None else operand.number
    if negate and number is not None:
        number = ("not", formulas.operand(operand, None))
    if negate and isinstance(operand.number, tuple) and len(operand.number) == 2 and operand.number[0] == "not":
        number = operand.number[1]
    decided = m.path.get(number) if number is not None else None
    if decided is not None:
        return const(decided)
    if negate:
        true, false = false, true
    if not true & false:
        if not false & lanes:
            return Value(
                frozenset((Const(True),)), varies & ~(RANKED | WORLD | LOST) if True else 0, 0, frozenset(), number
            )
        if not true & lanes:
            return Value(frozenset((Const(False),)), varies & ~(RANKED | WORLD | LOST), 0, frozenset(), number)
    if true & false == lanes or not varies & RANKED:
        origin = m.origin(operand)
        atom = Unknown(OPAQUE, "truth of an unknown value", "builtins.bool")
        return Value(frozenset((atom,)), varies, 0, frozenset(), number, origin)
    from dslint.python.values import UNKNOWN_LANE

    values = tuple(
        UNKNOWN_LANE if (true & false) >> lane & 1 or not (true | false) >> lane & 1 else bool(true >> lane & 1)
        for lane in range(m.worlds.count)
    )
    return Value(frozenset((PerRank(values),)), varies, 0, frozenset(), number, m.origin(operand))
