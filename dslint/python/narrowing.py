"""What a test says about the names in it, on each side: `x is None`, `x`, `isinstance(x, C)`, `hasattr(x, "a")`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dslint.python import expressions
from dslint.python.joins import join_all
from dslint.python.machine import Machine
from dslint.python.values import Api, Atom, Const, Instance, Unknown, Value, const

# What may stand in the second argument of a test that is asked once more.
_PLAIN = (ast.Name, ast.Attribute, ast.Tuple, ast.Constant, ast.expr_context)


def narrow(m: Machine, test: ast.expr, holds: bool) -> None:
    """Remember on this side of a test what it says about a name: `x is None`, `x`, `not x`, `a and b`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        narrow(m, test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
        for part in test.values:
            narrow(m, part, holds)
    elif m.keeps_configs and holds and (texts := _texts_of(test)) is not None:
        key, value = _cell(m, texts[0])
        if key is not None and value is not None and value.constants is None:
            m.store.set(key, join_all(map(const, texts[1])))
    elif (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
    ):
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None:
            _narrow_none(m, test.left, isinstance(test.ops[0], ast.Is | ast.Eq) is holds)
    elif isinstance(test, ast.Call):
        _narrow_kind(m, test, holds)
    elif isinstance(test, ast.Name | ast.Attribute):
        key, value = _cell(m, test)
        if key is not None and value is not None:
            kept = expressions._only(m, value, holds=holds)
            if kept is not value and kept.atoms and len(kept.atoms) < len(value.atoms):
                m.store.set(key, kept)


def _texts_of(test: ast.expr) -> tuple[ast.Name | ast.Attribute, list[str]] | None:
    """Return the name of which a test says that it is one of some texts: `x == "a" or x == "b"`, `x in ("a", "b")`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts = [_texts_of(part) for part in test.values]
        known = [part for part in parts if part is not None]
        is_one = len(known) == len(parts) and len({ast.dump(name) for name, _ in known}) == 1
        return (known[0][0], [text for _, texts in known for text in texts]) if is_one else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name | ast.Attribute):
        return None
    op, right = test.ops[0], test.comparators[0]
    listed = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) and isinstance(op, ast.In) else [right]
    texts = [item.value for item in listed if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    is_told = isinstance(op, ast.Eq) or (isinstance(op, ast.In) and listed != [right])
    return (test.left, texts) if is_told and texts and len(texts) == len(listed) else None


def _narrow_none(m: Machine, node: ast.expr, is_none: bool) -> None:
    if isinstance(node, ast.NamedExpr):
        node = node.target
    key, value = _cell(m, node)
    if key is None or value is None:
        return
    kept = frozenset(
        a for a in value.atoms if (isinstance(a, Const) and a.value is None) is is_none or (is_none and _may_be_none(a))
    )
    if kept and kept != value.atoms:
        m.store.set(key, Value(kept, value.varies, value.shape, value.made_by, value.number, value.origin))


def _narrow_kind(m: Machine, test: ast.Call, holds: bool) -> None:
    """Keep what `isinstance(x, C)` or `hasattr(x, "a")` leaves of `x`."""
    if not isinstance(test.func, ast.Name) or len(test.args) != 2 or test.keywords:
        return
    key, value = _cell(m, test.args[0])
    if key is None or value is None or len(value.atoms) < 2:
        return
    asks = _asked(m, test)
    if asks is None:
        return
    kept = frozenset(atom for atom in value.atoms if asks(atom) is not (not holds))
    if kept and kept != value.atoms:
        m.store.set(key, Value(kept, value.varies, value.shape, value.made_by, value.number, value.origin))


def _asked(m: Machine, test: ast.Call) -> Callable[[Atom], bool | None] | None:
    """Return what such a call answers for one of the things that a name may be; `None` where it asks otherwise."""
    from dslint.python.reflection import has_attribute, is_of_kind

    wanted = test.args[1]
    if not all(
        isinstance(n, ast.Name | ast.Attribute | ast.Tuple | ast.Constant | ast.expr_context) for n in ast.walk(wanted)
    ):
        return None
    called = expressions.evaluate(m, test.func).single
    name = called.path if isinstance(called, Api) else ""
    if name == "builtins.isinstance":
        kind = expressions.evaluate(m, wanted).single
        return (lambda atom: is_of_kind(m, atom, kind)) if kind is not None else None
    if name == "builtins.hasattr" and isinstance(wanted, ast.Constant) and isinstance(wanted.value, str):
        attribute = wanted.value
        return lambda atom: False if _lacks(m, atom, attribute) else has_attribute(m, atom, attribute)
    return None


def _lacks(m: Machine, atom: Atom, name: str) -> bool:
    """Return whether an object of a library has no attribute that other objects of its family have."""
    if not isinstance(atom, Instance) or not isinstance(atom.cls, str) or m.store.get((atom, name)) is not None:
        return False
    rows = list(m.libraries.lineage(atom.cls))
    if any(
        name in (*row.fields, *row.methods, *row.properties) or "unknown_members" in row.constructor.extra
        for row in rows
    ):
        return False
    return any(name in row.constructor.extra.get("lacks", ()) for row in rows)


def _may_be_none(atom: object) -> bool:
    return (isinstance(atom, Unknown) and not atom.type) or (isinstance(atom, Instance) and not atom.cls)


def _cell(m: Machine, node: ast.expr) -> tuple[Any, Value | None]:
    """Return the cell of a name or of an attribute of one object, with its value."""
    if isinstance(node, ast.Name):
        scope = m.frame.scope
        if scope is None or node.id in scope.locals:
            key: Any = (m.frame.id, node.id)
            return key, m.store.get(key)
        return None, None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        _, owner = _cell(m, node.value)
        atom = owner.single if owner is not None else None
        if isinstance(atom, Instance):
            key = (atom, node.attr)
            return key, m.store.get(key)
    return None, None
