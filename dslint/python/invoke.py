"""Calls: of project functions (interpreted), classes, library rows, and of what nobody knows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from dslint.python import (
    attributes,
    bynames,
    containers,
    effects,
    frames,
    models,
    ownnames,
    ragged,
    unpacked,
)
from dslint.python.binding import Arguments
from dslint.python.events import Alt, Seq
from dslint.python.joins import join
from dslint.python.lookups import looked_up
from dslint.python.machine import Machine
from dslint.python.misfits import note_attribute
from dslint.python.namedlayers import note_layer, note_object
from dslint.python.opaque import opaque_call
from dslint.python.places import ordered
from dslint.python.several import is_alike, note_none, with_member, without_none
from dslint.python.values import (
    LOST_VALUE,
    NOTHING,
    OPAQUE,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Function,
    Instance,
    Partial,
    Property,
    Static,
    Super,
    Unknown,
    Value,
    one,
)

_GROWS = frozenset({"append", "extend", "insert"})


def call(m: Machine, node: ast.Call) -> Value:
    """Return the value of a call expression."""
    from dslint.python.expressions import evaluate

    if m.libraries.own is not None:
        found = ownnames.called(m, node)
        if found is not None:
            return found
    if isinstance(node.func, ast.Attribute):
        base = evaluate(m, node.func.value)
        arguments = evaluated(m, node)
        if node.func.attr in _GROWS and arguments.positional:
            effects.growing(m, node.func.value, arguments.positional[-1], node)
        return call_member(m, base, node.func.attr, arguments, node)
    is_super = isinstance(node.func, ast.Name) and node.func.id == "super"
    found = _super(m, node) if is_super and (m.frame.owner is not None or len(node.args) == 2) else None
    if found is not None:
        return found
    function = evaluate(m, node.func)
    return call_value(m, function, evaluated(m, node), node)


def evaluated(m: Machine, node: ast.Call) -> Arguments:
    """Return the arguments of a call, evaluated in order."""
    from dslint.python.expressions import evaluate

    found = Arguments(written=True)
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            value = evaluate(m, argument.value)
            items = containers.exact_items(m, value) if found.rest is None else None
            if items is not None:
                nodes = unpacked.starred(m, argument.value, len(items))
                found.nodes.update(enumerate(nodes, len(found.positional)))
                found.positional += items
            else:
                more = containers.iterated(m, value, argument)
                found.rest = more if found.rest is None else join(found.rest, more)
        else:
            value = evaluate(m, argument)
            if found.rest is not None:
                found.rest = join(found.rest, value)
            else:
                found.nodes[len(found.positional)] = argument
                found.positional.append(value)
    for keyword in node.keywords:
        value = evaluate(m, keyword.value)
        if keyword.arg is None:
            unpacked.add_mapping(m, value, found, node)
        else:
            found.nodes[keyword.arg] = keyword.value
            found.keywords[keyword.arg] = value
    return found


def _super(m: Machine, node: ast.Call) -> Value | None:
    from dslint.python.expressions import evaluate

    owner, receiver = m.frame.owner, m.frame.receiver
    if len(node.args) == 2:
        first = evaluate(m, node.args[0]).single
        owner, receiver = first if isinstance(first, ClassAtom) else owner, evaluate(m, node.args[1])
    if owner is None or receiver is None:
        return None
    atoms: set[Atom] = {Super(owner, a) for a in receiver.atoms if isinstance(a, Instance | ClassAtom)}
    return Value(frozenset(atoms)) if atoms else None


def call_member(m: Machine, base: Value, name: str, arguments: Arguments, node: ast.AST) -> Value:
    """Return `base.name(...)`."""
    note_none(m, base, name, node)
    runs: list[Callable[[], Value]] = []
    for atom in ordered(with_member(base.atoms, name)):
        runs.append(lambda atom=atom: _call_member(m, atom, base, name, arguments, node))  # type: ignore[misc]
    found = alternatives(m, runs, base, node)
    shape = base.shape if base.shape and is_alike(m, base, found) else 0
    return found.with_(base.varies, shape, base.made_by, base.origin) if base.varies else found


def _call_member(m: Machine, atom: Atom, base: Value, name: str, arguments: Arguments, node: ast.AST) -> Value:
    if isinstance(atom, Instance):
        before = len(m.events)
        method = _method(m, atom, name, node)
        if method is not None:
            found = call_value(m, method.with_(0, 0, base.made_by), arguments, node)
            found = effects.around_override(m, atom, name, method, found, node)
        else:
            found = _unknown_method(m, atom, base, name, arguments, node)
        if len(m.events) == before and m.alive:
            note_layer(m, atom, name, arguments, node)
        return models.past_wrapper(m, atom, name, found, arguments, node)
    if isinstance(atom, Unknown):
        return _method_of_unknown(m, atom, base, name, arguments, node)
    if isinstance(atom, Function) and name == "__get__" and arguments.positional:
        return Value(frozenset(Bound(atom, a) for a in arguments.positional[0].atoms))
    if isinstance(atom, Function) and name == "__call__":
        return call_value(m, one(atom), arguments, node)
    return call_value(m, attributes.read(m, one(atom), name, node), arguments, node)


def _method(m: Machine, atom: Instance, name: str, node: ast.AST) -> Value | None:
    """Return what a name means on an object when something defines it."""
    stored = m.store.get((atom, name))
    if isinstance(atom.cls, ClassAtom):
        found = attributes._of_project_object(m, atom, atom.cls, stored, name, node)
        return found or attributes._of_library_object(m, atom, atom.cls, name, node)
    if stored is not None:
        return stored
    return attributes._of_library_object(m, atom, atom.cls, name, node)


def _unknown_method(m: Machine, atom: Instance, base: Value, name: str, arguments: Arguments, node: ast.AST) -> Value:
    """Call a method that no class declares: of an unknown object, of a Tensor by its name, or a lost one."""
    from dslint.python.library import call_row

    row = bynames.method_of(m, name) if not atom.cls or atom.cls == "pandas.DataFrame" else None
    if row is not None:
        return call_row(m, row, arguments, atom, node, base)
    if isinstance(atom.cls, ClassAtom):
        note_attribute(m, base, name, ("field", atom, name), node)
        has_unknown_base = any(b == "" for b in attributes.lineage(m, atom.cls))
        kind = OPAQUE if has_unknown_base or _has_open_base(m, atom.cls) else LOST_VALUE
        return opaque_call(m, arguments, node, f"method `{name}` that no class of the project defines", one(atom), kind)
    if atom.cls and atom.cls.startswith(("torch.", "deepspeed.", "accelerate.", "transformers.")):
        return opaque_call(m, arguments, node, f"unknown member `{name}` of `{atom.cls}`", one(atom), OPAQUE)
    held = looked_up(m, atom, arguments, node) if name == "get" and not atom.cls else None
    if held is not None:
        return held
    bynames.note_step(m, name, arguments, node)
    found = opaque_call(m, arguments, node, f"method `{name}` of an unknown object", one(atom))
    return ragged.by_name(m, name, arguments, found, node)


def _has_open_base(m: Machine, cls: ClassAtom) -> bool:
    return any(isinstance(b, str) and m.libraries.class_(b) is None for b in attributes.lineage(m, cls))


def _method_of_unknown(m: Machine, atom: Unknown, base: Value, name: str, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.library import call_row
    from dslint.python.methods import call_builtin_method

    if atom.type:
        found = call_builtin_method(m, atom, base, name, arguments, node)
        if found is not None:
            return found
    row = m.libraries.method(atom.type, name) if atom.type else bynames.method_of(m, name)
    if row is None and atom.type == "builtins.bool":  # a comparison of what may be tensors
        row = bynames.method_of(m, name)
    if row is not None:
        return call_row(m, row, arguments, None, node, base)
    bynames.note_step(m, name, arguments, node)
    return opaque_call(m, arguments, node, f"method `{name}` of an unknown value", base)


def alternatives(m: Machine, runs: list[Callable[[], Value]], subject: Value, node: ast.AST) -> Value:
    """Run every alternative from the same state, and join results and states."""
    if len(runs) == 1:
        return runs[0]()
    if not runs:
        return NOTHING
    results: list[Value] = []
    focus = m.program.focus
    if focus is not None:
        focus.forks += 1
    try:
        _one_or_next(m, runs, 0, subject, node, results)
    finally:
        if focus is not None:
            focus.forks -= 1
    found = NOTHING
    for value in results:
        found = join(found, value, subject.varies)
    return found


def _one_or_next(
    m: Machine, runs: list[Callable[[], Value]], at: int, subject: Value, node: ast.AST, results: list[Value]
) -> None:
    # No inner function: one that calls itself is garbage that holds the machine until the collector comes.
    if at == len(runs) - 1:
        results.append(runs[at]())
        return
    alt = Alt(node, m.frame.module, None, m.lanes, m.lanes, subject.varies, Seq(), Seq())
    outer = m.events
    m.branch(
        alt,
        lambda: results.append(runs[at]()),
        lambda: _one_or_next(m, runs, at + 1, subject, node, results),
    )
    if alt.then.items or alt.orelse.items:
        outer.append(alt)


def call_value(m: Machine, function: Value, arguments: Arguments, node: ast.AST) -> Value:
    """Return the result of calling a value."""
    runs: list[Callable[[], Value]] = []
    for atom in ordered(without_none(function.atoms)):
        runs.append(lambda atom=atom: call_atom(m, atom, function, arguments, node))  # type: ignore[misc]
    found = alternatives(m, runs, function, node)
    if len(runs) > 1 and function.number in m.chosen:
        return replace(found, number=("called", function.number, m.number()))
    return found


def call_atom(m: Machine, atom: Atom, function: Value, arguments: Arguments, node: ast.AST) -> Value:
    """Return the result of calling one atom."""
    from dslint.python.library import call_path

    if isinstance(atom, Function):
        return frames.call_function(m, atom, arguments, node, owner=atom.owner)
    if isinstance(atom, Bound):
        if isinstance(atom.function, Function):
            return frames.call_function(
                m, atom.function, arguments.shifted(one(atom.receiver)), node, owner=atom.function.owner
            )
        return call_bound_path(m, atom, arguments, node, function)
    if isinstance(atom, Api):
        return call_path(m, atom.path, arguments, node)
    if isinstance(atom, ClassAtom):
        from dslint.python.objects import construct

        return construct(m, atom, arguments, node)
    if isinstance(atom, Instance):
        receiver, name = _held_method(m, atom, function)
        if receiver is not None:
            return _call_member(m, receiver, one(receiver, made_by=function.made_by), name, arguments, node)
        note_object(m, atom, function, arguments, node)
        return call_object(m, atom, arguments, node)
    if isinstance(atom, Partial):
        given = Arguments(
            [*atom.arguments, *arguments.positional],
            {**dict(atom.keywords), **arguments.keywords},
            arguments.rest,
            arguments.open_keywords,
            written=arguments.written,
        )
        return call_value(m, atom.function, given, node)
    if isinstance(atom, Static | Property):
        return frames.call_function(m, atom.function, arguments, node, owner=atom.function.owner)
    return opaque_call(m, arguments, node, "call of an unknown value", function)


def _held_method(m: Machine, atom: Instance, function: Value) -> tuple[Instance | None, str]:
    """Return the object and the name of `save = engine.save`, of an object that nobody knows."""
    match function.number:
        case ("field", Instance() as receiver, str() as name) if not (atom.cls or receiver.cls):
            return (receiver, name) if m.store.get((receiver, name)) is None else (None, "")
    return None, ""


def call_bound_path(m: Machine, atom: Bound, arguments: Arguments, node: ast.AST, function: Value) -> Value:
    """Call a method of a library class or of a builtin type."""
    from dslint.python.library import call_row
    from dslint.python.methods import call_builtin_method

    assert isinstance(atom.function, str)
    path, _, name = atom.function.rpartition(".")
    receiver = atom.receiver
    base = one(receiver, 0, 0, function.made_by)
    if path.startswith("builtins.") or path in ("collections.deque",):
        found = call_builtin_method(m, receiver, base, name, arguments, node)
        if found is not None:
            return found
        return opaque_call(m, arguments, node, f"`{atom.function}`", base)
    if name == "__init__":
        from dslint.python.library import initialize

        return initialize(m, path, arguments, receiver, node)
    row = m.libraries.method(path, name)
    if row is None:
        return opaque_call(m, arguments, node, f"unknown member `{name}` of `{path}`", base)
    return call_row(m, row, arguments, receiver, node, base)


def call_object(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    """Call an object: `__call__` of its class, or the method that its library class runs."""
    from dslint.python.effects import class_in_place
    from dslint.python.library import forward_event

    in_place = class_in_place(m, atom)
    row = m.libraries.class_(in_place)
    if row is not None:
        forward_event(m, in_place, atom, arguments, node)
    if row is not None and row.kind:  # it wraps a model, or may do so
        found = _call_object(m, atom, arguments, node)
        return found.with_(0, 0, frozenset((atom,))) if m.alive else found
    return models.past_wrapper(m, atom, "", _call_object(m, atom, arguments, node), arguments, node)


def _call_object(m: Machine, atom: Instance, arguments: Arguments, node: ast.AST) -> Value:
    from dslint.python.library import call_row

    if isinstance(atom.cls, ClassAtom):
        method = attributes.of_class(m, atom.cls, "__call__", atom)
        if method is not None and any(isinstance(a, Bound) and isinstance(a.function, Function) for a in method.atoms):
            return call_value(m, method, arguments, node)
        for base in attributes.lineage(m, atom.cls):
            row = m.libraries.class_(base) if isinstance(base, str) else None
            name = (
                next((r.call for r in m.libraries.lineage(base) if r.call), "") if isinstance(base, str) and row else ""
            )
            if name:
                return call_member(m, one(atom), name, arguments, node)
        return opaque_call(m, arguments, node, "call of an object", one(atom))
    name = next((row.call for row in m.libraries.lineage(atom.cls) if row.call), "") if atom.cls else ""
    if name:
        method_row = m.libraries.method(atom.cls, name)
        if method_row is not None:
            return call_row(m, method_row, arguments, atom, node, one(atom))
    found = opaque_call(m, arguments, node, "call of an unknown object", one(atom))
    return ragged.by_name(m, "", arguments, found, node) if not atom.cls else found


def call_method(m: Machine, base: Value, name: str, values: list[Value], node: ast.AST) -> Value | None:
    """Call a method with these values; `None` when no class of the project defines it."""
    atom = base.single
    if not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom):
        return None
    method = attributes.of_class(m, atom.cls, name, atom)
    if method is None or not any(isinstance(a, Bound) and isinstance(a.function, Function) for a in method.atoms):
        return None
    return call_value(m, method, Arguments(list(values)), node)
