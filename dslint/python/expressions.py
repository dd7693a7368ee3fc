"""Expressions: one handler for each type of node. :func:`evaluate` is the only way in."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dslint.python import (
    arithmetic,
    attributes,
    bindings,
    comparisons,
    connectives,
    containers,
    dictionaries,
    generators,
    gradients,
    invoke,
    narrowing,
    ownnames,
    parameters,
    paths,
    presence,
    ragged,
    ranknames,
    subscripts,
    widths,
)
from dslint.python.budgets import goes_on
from dslint.python.events import Alt, Seq
from dslint.python.heap import OutOfBudgetError
from dslint.python.joins import join, join_all
from dslint.python.machine import Machine
from dslint.python.misfits import note_attribute
from dslint.python.missingfields import note_missing
from dslint.python.operators import apply
from dslint.python.several import note_none
from dslint.python.special import text_of
from dslint.python.values import (
    INPUT,
    NOTHING,
    OPAQUE,
    Api,
    Const,
    Function,
    Instance,
    Tuple,
    Unknown,
    Value,
    Written,
    const,
    one,
    unknown,
)


def evaluate(m: Machine, node: ast.expr) -> Value:
    """Return what an expression may hold, with all that its evaluation does."""
    m.steps += 1
    if m.steps > m.limit and not goes_on(m, m.frame):
        raise OutOfBudgetError
    handler = _HANDLERS.get(type(node))
    if handler is None:
        return m.gives_up(node, f"{type(node).__name__} is not read")
    found = handler(m, node)
    if m.recorder is not None and m.alive:
        m.recorder(m.frame.module, node, found)
    return found


def _constant(m: Machine, node: ast.Constant) -> Value:
    return const(node.value) if not isinstance(node.value, complex) else unknown(OPAQUE, "complex number")


def _name(m: Machine, node: ast.Name) -> Value:
    own = ownnames.read(m, node) if m.libraries.own is not None else None
    return own or read_name(m, node.id, node)


def read_name(m: Machine, name: str, node: ast.AST) -> Value:
    """Return what a name holds, by Python's rules of scope."""
    frame = m.frame
    scope = frame.scope
    get = m.store.get
    if scope is None or name in scope.locals:
        found = get((frame.id, name))
        if found is not None and found.atoms:
            return bindings.noted(m, found, frame.id, name, node) if m.partly else found
        bindings.note_unbound(m, name, node)
    outer = frame.enclosing if scope is None or name not in scope.globals else ()
    for owner in (*outer, frame.module_frame):
        found = get((owner, name))
        if found is not None and found.atoms:
            return bindings.noted(m, found, owner, name, node) if m.partly else found
    focus = m.program.focus
    found = focus.arrived(m, frame.module_frame, name) if focus is not None else None
    if found is not None:
        return found
    if name in _BUILTINS:
        return one(Api(f"builtins.{name}"))
    if name in ("__file__", "__name__", "__doc__"):
        atom = Unknown(INPUT, f"`{name}`", "builtins.str")
        return Value(frozenset((atom,)), 0, 0, frozenset(), (name, frame.module.absolute))
    ranked = ranknames.named(m, name, m.frame.module, node) if scope is None or name not in scope.locals else None
    if ranked is not None:
        return ranked
    return unknown(OPAQUE, f"nothing binds `{name}` before this place")


_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)


def _tuple(m: Machine, node: ast.Tuple) -> Value:
    items = _display(m, node.elts)
    if items is None:
        return m.thing(node, "tuple with unpacked values", cls="builtins.tuple")
    return one(Tuple(tuple(items)))


def _display(m: Machine, elements: list[ast.expr]) -> list[Value] | None:
    """Return the items of a display; `None` where something of unknown length is unpacked (its items are joined)."""
    items: list[Value] = []
    exact = True
    for element in elements:
        if isinstance(element, ast.Starred):
            inner = evaluate(m, element.value)
            known = containers.exact_items(m, inner)
            if known is None:
                exact = False
                items.append(containers.iterated(m, inner, element))
            else:
                items += known
        else:
            items.append(evaluate(m, element))
    return items if exact else None


def _list(m: Machine, node: ast.List) -> Value:
    items: list[Value] = []
    rest = None
    bits = moved = 0
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = evaluate(m, element.value)
            known = containers.exact_items(m, inner)
            if known is None:
                part = containers.iterated(m, inner, element)
                rest = part if rest is None else join(rest, part)
                # What stands behind an unpacked value is further back where there are more of it.
                moved |= bits
                bits |= containers.taken(m, inner, element)
                continue
            items += known
        else:
            items.append(evaluate(m, element))
        moved |= bits
    if rest is not None:
        rest = join_all([*items, rest]).with_(moved)
    return containers.new_list(m, node, items, rest, counted_by=bits)


def _set(m: Machine, node: ast.Set) -> Value:
    values = []
    bits = 0
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = evaluate(m, element.value)
            bits |= containers.taken(m, inner, element)
            values.append(containers.iterated(m, inner, element))
        else:
            values.append(evaluate(m, element))
    return containers.new_set(m, node, values, bits)


def _dict(m: Machine, node: ast.Dict) -> Value:
    parts: list[tuple[Value | None, Value, Value]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        name = evaluate(m, key) if key is not None else None
        place = one(Written(key or value, value, isinstance(key, ast.Constant)))
        parts.append((name, evaluate(m, value), place))
    made = dictionaries.made_of(m, node, parts)
    if not node.keys and containers.is_registry(m) and isinstance(made.single, Instance):
        dictionaries.add_unknown_key(m, made.single, containers.REGISTERED, containers.REGISTERED)
    return made


def _attribute(m: Machine, node: ast.Attribute) -> Value:
    base = evaluate(m, node.value)
    note_none(m, base, node.attr, node)
    note_missing(m, base, node.attr, node)
    own = ownnames.read(m, node) if m.libraries.own is not None else None
    found = own or attributes.read(m, base, node.attr, node)
    note_attribute(m, base, node.attr, found.number, node)
    if node.attr in m.libraries.reading:
        parameters.reading(m, [base], f"torch.Tensor.{node.attr}", node)
    return gradients.perhaps(m, base, found) if node.attr == gradients.GRAD else found


def _subscript(m: Machine, node: ast.Subscript) -> Value:
    base = evaluate(m, node.value)
    note_none(m, base, "__getitem__", node)
    parameters.reading(m, [base], "torch.Tensor.__getitem__", node)
    if isinstance(node.slice, ast.Slice):
        parts = [
            evaluate(m, p) if p is not None else const(None)
            for p in (node.slice.lower, node.slice.upper, node.slice.step)
        ]
        return ragged.part(m, base, parts[1], node, subscripts.sliced(m, base, parts, node))
    key = evaluate(m, node.slice)
    found = widths.part(m, key, subscripts.item(m, base, key, node), node)
    return ragged.part(m, base, key, node, found)


_SCALARS = ("builtins.int", "builtins.float", "builtins.str", "builtins.bool", "builtins.bytes")


def _only(m: Machine, value: Value, *, holds: bool) -> Value:
    """Return the part of a value that is true (or false)."""
    kept = []
    for atom in value.atoms:
        if isinstance(atom, Const) and bool(atom.value) is not holds:
            continue
        if isinstance(atom, Unknown) and atom.type == "builtins.bool":
            atom = Const(holds)
        kept.append(atom)
    if not kept:
        return const(holds) if not value.atoms else value
    return Value(frozenset(kept), value.varies, value.shape, value.made_by, value.number, value.origin)


def _branched(m: Machine, alt: Alt, then: Callable[[], None], orelse: Callable[[], None], number: object) -> None:
    outer = m.events
    m.branch(alt, then, orelse, number)
    if alt.then.items or alt.orelse.items:
        outer.append(alt)


def _met(m: Machine, results: dict[bool, tuple[Value, int]], varies: int, splits: bool) -> Value:
    if len(results) == 2:
        (first, first_lanes), (second, second_lanes) = results[True], results[False]
        return m.selected(first, first_lanes, second, second_lanes, varies if splits else 0)
    return next(iter(results.values()))[0] if results else NOTHING


def _ifexp(m: Machine, node: ast.IfExp) -> Value:
    test = evaluate(m, node.test)
    arms = tuple(arm.value if isinstance(arm, ast.Constant) else None for arm in (node.body, node.orelse))
    if arms in ((True, False), (False, True)) and all(isinstance(arm, bool) for arm in arms):
        return arithmetic.truth_value(m, test, negate=not arms[0])  # the answer itself
    true, false, varies = presence.truth(m, node.test, test)
    results: dict[bool, tuple[Value, int]] = {}

    def then() -> None:
        narrowing.narrow(m, node.test, True)
        results[True] = (evaluate(m, node.body), m.lanes)

    def orelse() -> None:
        narrowing.narrow(m, node.test, False)
        results[False] = (evaluate(m, node.orelse), m.lanes)

    alt = Alt(node, m.frame.module, m.with_origin(test), true, false, varies, Seq(), Seq())
    _branched(m, alt, then, orelse, test.number)
    m.split, m.asked = (m.frame.module, node), (node, test)
    found = _met(m, results, varies, bool(true & false))
    m.split = m.asked = None
    return found


def _call(m: Machine, node: ast.Call) -> Value:
    return invoke.call(m, node)


def _lambda(m: Machine, node: ast.Lambda) -> Value:
    return one(function_atom(m, node))


def function_atom(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Function:
    """Return the function that a definition makes here; its defaults are evaluated now."""
    frame = m.frame
    enclosing = (frame.id, *frame.enclosing) if frame.scope is not None else frame.enclosing
    key = (id(node), enclosing, frame.class_body)
    found = m.definition(key)
    if not isinstance(found, Function):
        found = m.new.definitions[key] = Function(node, frame.module, enclosing, frame.class_body)
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    for default in defaults:
        m.store.set((found, id(default)), evaluate(m, default))
    return found


def _joined(m: Machine, node: ast.JoinedStr) -> Value:
    parts: list[Value] = []
    plain = True
    for piece in node.values:
        if isinstance(piece, ast.FormattedValue):
            part = evaluate(m, piece.value)
            parts.append(text_of(m, part, piece) or part)
            plain = plain and piece.format_spec is None and piece.conversion == -1
            if piece.format_spec is not None:
                parts.append(evaluate(m, piece.format_spec))
        else:
            parts.append(evaluate(m, piece))
    if plain:
        found = apply(m.worlds, lambda *values: "".join(map(str, values)), parts)
        if found is not None:
            return found
    text = arithmetic.scalar(m, tuple(parts), "builtins.str")
    return paths.joined([paths.known(m, part) for part in parts], text, node=node, between="")


def _formatted(m: Machine, node: ast.FormattedValue) -> Value:
    return arithmetic.scalar(m, (evaluate(m, node.value),), "builtins.str")


def _named(m: Machine, node: ast.NamedExpr) -> Value:
    from dslint.python.statements import assign

    found = evaluate(m, node.value)
    assign(m, node.target, found)
    return found


def _starred(m: Machine, node: ast.Starred) -> Value:
    return evaluate(m, node.value)


def _comprehension(m: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    from dslint.python.comprehensions import comprehension

    return comprehension(m, node)


def _yield(m: Machine, node: ast.Yield) -> Value:
    value = evaluate(m, node.value) if node.value is not None else const(None)
    if m.frame.on_yield is not None:
        _note_yields(m, 0)
        generators.note_restarts(m)
        m.frame.on_yield(value)
    return unknown(OPAQUE, "what is sent into a generator")


def _note_yields(m: Machine, counted: int) -> None:
    """Note why ranks may come here a different number of times, or get a different number of items here."""
    for state in m.frame.loops:
        counted |= state.tree.varies if state.tree is not None else 0
    m.frame.yielded_by |= counted | m.control


def _yield_from(m: Machine, node: ast.YieldFrom) -> Value:
    from dslint.python.loops import items_of, makers, repeat

    subject = evaluate(m, node.value)
    counted = containers.counted(m, subject)

    def turn() -> None:
        value = items_of(m, subject, node)
        if m.frame.on_yield is not None:
            generators.note_restart(m, makers(value), len(m.frame.loops))
            m.frame.on_yield(value)

    repeat(m, node, turn, counted)
    _note_yields(m, counted | containers.counted(m, subject))  # a generator has run only now
    return unknown(OPAQUE, "result of `yield from`")


def _await(m: Machine, node: ast.Await) -> Value:
    return evaluate(m, node.value)


_HANDLERS: dict[type[ast.AST], Callable[[Machine, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: widths.slice_of,
    ast.BinOp: arithmetic._binop,
    ast.UnaryOp: arithmetic._unaryop,
    ast.BoolOp: connectives.boolop,
    ast.IfExp: _ifexp,
    ast.Compare: comparisons._compare,
    ast.Call: _call,
    ast.Lambda: _lambda,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.NamedExpr: _named,
    ast.Starred: _starred,
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _comprehension),
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.Await: _await,
}

__all__ = ["evaluate", "function_atom", "read_name"]
