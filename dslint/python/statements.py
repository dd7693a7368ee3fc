"""Statements: one handler for each type of node. :func:`execute` runs a block."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from dslint.python import (
    attributes,
    bynames,
    configdicts,
    containers,
    dictionaries,
    exceptional,
    gradients,
    ownnames,
    presence,
    ranknames,
    subscripts,
    writing,
)
from dslint.python.arithmetic import binary
from dslint.python.binding import Arguments
from dslint.python.effects import freezing, growing, writing_data, writing_item, writing_over
from dslint.python.events import Alt, Seq
from dslint.python.exceptions import is_clean_exit, thrown
from dslint.python.expressions import evaluate, function_atom, read_name
from dslint.python.focus import tested, waits
from dslint.python.invoke import call_value
from dslint.python.loops import for_loop, while_loop
from dslint.python.machine import Machine
from dslint.python.misfits import note_unpacked
from dslint.python.missingfields import note_missing
from dslint.python.narrowing import narrow
from dslint.python.objects import define_class, is_dataclass
from dslint.python.several import note_none
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    ClassAtom,
    Const,
    Instance,
    Value,
    const,
    one,
    unknown,
)


def execute(m: Machine, body: Sequence[ast.stmt]) -> None:
    """Run statements until one leaves the block."""
    for statement in body:
        if not m.alive:
            return
        m.steps += 1
        if m.check_stop is not None:
            m.check_stop()
        handler = _HANDLERS.get(type(statement))
        if handler is not None:
            handler(m, statement)


def assign(m: Machine, target: ast.expr, value: Value, at: ast.AST | None = None) -> None:
    """Store a value in a target: a name, an attribute, an item, or several of them; `at` is its expression."""
    if isinstance(target, ast.Name):
        store_name(m, target.id, bynames.assigned(m, target.id, value, target))
    elif isinstance(target, ast.Attribute):
        base = evaluate(m, target.value)
        note_none(m, base, target.attr, target)
        attributes.write(m, base, target.attr, bynames.assigned(m, target.attr, value, target), target)
        if target.attr == "requires_grad":
            freezing(m, base, value, target)
        elif target.attr == "data":
            writing_data(m, base, target)
        elif target.attr == gradients.GRAD:
            gradients.note_written(m, base, value)
    elif isinstance(target, ast.Subscript):
        base = evaluate(m, target.value)
        writing_item(m, base, target, value)
        if isinstance(target.slice, ast.Slice):
            parts = [evaluate(m, p) for p in (target.slice.lower, target.slice.upper, target.slice.step) if p]
            writing.store_slice(
                m,
                base,
                containers.iterated(m, value, target),
                _bits(m, parts)[0] | containers.counted(m, value),
                target,
            )
        else:
            writing.store_item(m, base, evaluate(m, target.slice), value, target, at)
    elif isinstance(target, ast.Tuple | ast.List):
        star = next((at for at, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        values = subscripts.unpacked(m, value, len(target.elts), star, target)
        for element, part in zip(target.elts, values, strict=True):
            assign(m, element.value if isinstance(element, ast.Starred) else element, part, at)
    elif isinstance(target, ast.Starred):
        assign(m, target.value, value)


def _bits(m: Machine, parts: list[Value]) -> tuple[int]:
    found = 0
    for part in parts:
        found |= m.varies(part)
    return (found,)


def store_name(m: Machine, name: str, value: Value) -> None:
    """Bind a name by Python's rules of scope."""
    frame = m.frame
    while (
        frame.is_comprehension
        and frame.parent is not None
        and frame.scope is not None
        and name not in frame.scope.locals
    ):
        frame = frame.parent  # `:=` binds outside of the comprehension
    scope = frame.scope
    if scope is not None and name in scope.globals:
        m.store.set((frame.module_frame, name), value)
        return
    if scope is not None and name not in scope.locals:
        for outer in frame.enclosing:
            if m.store.get((outer, name)) is not None:
                m.store.set((outer, name), value)
                return
    m.store.set((frame.id, name), value)


def _expression(m: Machine, node: ast.Expr) -> None:
    tested(m, node.value, node)


def _assign(m: Machine, node: ast.Assign) -> None:
    value = evaluate(m, node.value)
    if m.frame.class_body is not None:
        _field_arguments(m, node.targets[0], node.value)
    for target in node.targets:
        if isinstance(target, ast.Tuple | ast.List):
            note_unpacked(m, value, target, node.value)
        assign(m, target, value, node.value)


def _annotated(m: Machine, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    assign(m, node.target, evaluate(m, node.value), node.value)
    if m.frame.class_body is not None:
        _field_arguments(m, node.target, node.value)


def _field_arguments(m: Machine, target: ast.expr, value: ast.expr) -> None:
    """Keep what `field(default=..., default_factory=...)` of a dataclass says."""
    cls = m.frame.class_body
    if cls is None or not isinstance(target, ast.Name) or not isinstance(value, ast.Call):
        return
    for keyword in value.keywords:
        if keyword.arg in ("default", "default_factory"):
            m.store.set((cls, ("field", target.id, keyword.arg)), evaluate(m, keyword.value))


def _augmented(m: Machine, node: ast.AugAssign) -> None:
    target = node.target
    if isinstance(target, ast.Name):
        old = read_name(m, target.id, target)
    elif isinstance(target, ast.Attribute):
        base = evaluate(m, target.value)
        note_missing(m, base, target.attr, target)
        old = attributes.read(m, base, target.attr, target)
    else:
        old = subscripts.item(m, evaluate(m, target.value), _index(m, target), target)
    value = evaluate(m, node.value)
    growing(m, target, value, node)
    if writing.augmented(m, old, type(node.op), value, node):
        return
    if isinstance(node.op, ast.BitOr) and dictionaries.updated_in_place(m, old, value, node):
        return
    if not isinstance(target, ast.Subscript):
        writing_over(m, old, target)
    assign(m, target, binary(m, type(node.op), old, value, node), node)


def _index(m: Machine, target: ast.Subscript) -> Value:
    if isinstance(target.slice, ast.Slice):
        ends = (target.slice.lower, target.slice.upper, target.slice.step)
        return unknown(OPAQUE, "slice", _bits(m, [evaluate(m, end) for end in ends if end is not None])[0])
    return evaluate(m, target.slice)


def _if(m: Machine, node: ast.If) -> None:
    test = tested(m, node.test, node)
    if not m.alive:
        return
    true, false, varies = presence.truth(m, node.test, test)
    m.taken[id(node)] = m.taken.get(id(node), 0) | bool(true) | bool(false) << 1
    alt = Alt(node, m.frame.module, m.with_origin(test), true, false, varies, Seq(), Seq())

    def then() -> None:
        narrow(m, node.test, True)
        execute(m, node.body)

    def orelse() -> None:
        narrow(m, node.test, False)
        execute(m, node.orelse)

    m.branch(alt, then, orelse, test.number)
    if alt.then.items or alt.orelse.items:
        m.events.append(alt)


def _return(m: Machine, node: ast.Return) -> None:
    value = evaluate(m, node.value) if node.value is not None else const(None)
    if m.alive:
        configdicts.leaving(m, value)
        m.leave("return", node, value)


def _raise(m: Machine, node: ast.Raise) -> None:
    value = evaluate(m, node.exc) if node.exc is not None else None
    if node.cause is not None:
        evaluate(m, node.cause)
    if m.alive and value is not None:
        value = thrown(m, value, node)
    if m.alive:
        m.leave("raise", node, value, is_clean=is_clean_exit(m, value))


def _break(m: Machine, node: ast.Break) -> None:
    m.leave("break", node)


def _continue(m: Machine, node: ast.Continue) -> None:
    m.leave("continue", node)


def _function(m: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    decorators = [(d, evaluate(m, d)) for d in node.decorator_list]
    atom = function_atom(m, node)
    m.program.note_function(atom)
    value = one(atom)
    for decorator, function in reversed(decorators):
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter"):
            if m.frame.class_body is not None:
                m.store.set((m.frame.class_body, f"{node.name}.{decorator.attr}"), one(atom))
            return
        value = _decorated(m, function, value, decorator)
    store_name(m, node.name, value)


def _decorated(m: Machine, function: Value, value: Value, node: ast.expr) -> Value:
    """Return what a decorator makes of a function; the function itself where nobody knows the decorator."""
    from dslint.python.values import Api, Bound

    atom = function.single
    lanes = ownnames.decorated(m, node) or ranknames.decorated(m, function, node)
    if lanes is not None:
        from dslint.python.restrictions import restrict

        restrict(m, value, lanes)
        return value
    if isinstance(atom, Api | Instance):
        path = m.libraries.canonical(atom.path) if isinstance(atom, Api) else str(atom.cls)
        from dslint.python.functions import FUNCTIONS

        if isinstance(atom, Api) and path in FUNCTIONS:
            return call_value(m, function, Arguments([value]), node)
        if isinstance(atom, Api) and _restricts(m, path):
            call_value(m, function, Arguments([value]), node)
        m.program.note_decorator(m, value, path, node)
        return value
    if isinstance(atom, Bound) and isinstance(atom.function, str):
        if _restricts(m, atom.function):
            call_value(m, function, Arguments([value]), node)
        m.program.note_decorator(m, value, atom.function, node)
        return value
    found = call_value(m, function, Arguments([value]), node)
    if all(isinstance(a, Instance) and not a.cls for a in found.atoms) or not found.atoms:
        m.program.note_decorator(m, value, "", node)  # which may take other arguments
        return value
    return found


def _restricts(m: Machine, path: str) -> bool:
    """Return whether a decorator of a library lets a function run on some ranks only."""
    owner, _, name = path.rpartition(".")
    row = m.libraries.function(path) or m.libraries.method(owner, name)
    return row is not None and "runs_on" in row.extra


def _class(m: Machine, node: ast.ClassDef) -> None:
    decorators = [evaluate(m, d) for d in node.decorator_list]
    value = define_class(m, node)
    cls = value.single
    assert isinstance(cls, ClassAtom)
    m.program.note_class(cls)
    for decorator in reversed(decorators):
        if is_dataclass(m, cls):
            continue
        found = call_value(m, decorator, Arguments([value]), node)
        if found.atoms and any(isinstance(a, ClassAtom) for a in found.atoms):
            value = found
    store_name(m, node.name, value)


def _import(m: Machine, node: ast.Import) -> None:
    if waits(m, node):
        return
    for alias in node.names:
        if alias.asname:
            store_name(m, alias.asname, m.program.imported(m, m.frame.module, alias.name, node))
        else:
            m.program.imported(m, m.frame.module, alias.name, node)
            first = alias.name.partition(".")[0]
            store_name(m, first, m.program.imported(m, m.frame.module, first, node))


def _import_from(m: Machine, node: ast.ImportFrom) -> None:
    if waits(m, node):
        return
    name = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            for key, value in m.program.everything(m, m.frame.module, name, node).items():
                store_name(m, key, value)
        else:
            store_name(m, alias.asname or alias.name, m.program.member(m, m.frame.module, name, alias.name, node))


def _delete(m: Machine, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            m.store.set((m.frame.id, target.id), NOTHING)
        elif isinstance(target, ast.Subscript):
            base = evaluate(m, target.value)
            key = (index := _index(m, target)).single
            for atom in base.atoms:
                if isinstance(atom, Instance) and atom.cls == "builtins.dict":
                    if isinstance(key, Const):
                        dictionaries.drop_key(m, atom, key.value)
                    else:
                        dictionaries.drop_some(m, atom, m.varies(index))
                elif isinstance(atom, Instance):
                    writing.remove_at(m, atom, index, is_part=isinstance(target.slice, ast.Slice))
        elif isinstance(target, ast.Attribute):
            for atom in evaluate(m, target.value).atoms:
                m.store.set((atom, target.attr), NOTHING)


def _assert(m: Machine, node: ast.Assert) -> None:
    test = evaluate(m, node.test)
    if m.alive:
        true, _, _ = m.truth(test)
        if not true:
            m.leave("raise", node)
            return
        narrow(m, node.test, True)


def _with(m: Machine, node: ast.With | ast.AsyncWith) -> None:
    from dslint.python.contexts import enter_contexts

    enter_contexts(m, node, 0)


def _match(m: Machine, node: ast.Match) -> None:
    from dslint.python.matching import match_statement

    match_statement(m, node)


def _nothing(m: Machine, node: ast.stmt) -> None:
    return


_HANDLERS: dict[type[ast.AST], Callable[[Machine, Any], None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.For: for_loop,
    ast.AsyncFor: for_loop,
    ast.While: while_loop,
    ast.Delete: _delete,
    ast.Assert: _assert,
    **dict.fromkeys((ast.With, ast.AsyncWith), _with),
    ast.Try: exceptional._try,
    ast.Match: _match,
    **dict.fromkeys((ast.Pass, ast.Global, ast.Nonlocal), _nothing),
    **({ast.TryStar: exceptional._try} if hasattr(ast, "TryStar") else {}),
}
