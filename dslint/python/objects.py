"""Classes of the project: their bodies, and what calling them does."""

from __future__ import annotations

import ast
from collections.abc import Container

from dslint.python import attributes, configdicts
from dslint.python.binding import Arguments
from dslint.python.dictionaries import place_of_keyword
from dslint.python.enums import fill_named_tuple, is_enum, is_named_tuple, looked_up, make_members
from dslint.python.exceptions import builtin_exception
from dslint.python.heap import BASES
from dslint.python.machine import Machine
from dslint.python.misfits import note_class
from dslint.python.values import (
    NOTHING,
    Bound,
    ClassAtom,
    Function,
    Instance,
    Tuple,
    Value,
    Written,
    const,
    one,
)

_DATACLASS = ("dataclasses.dataclass", "dslint.dataclass")


def define_class(m: Machine, node: ast.ClassDef) -> Value:
    """Return the class that a definition makes: its bases are evaluated, and its body runs."""
    from dslint.python.expressions import evaluate
    from dslint.python.heap import Frame
    from dslint.python.statements import execute

    frame = m.frame
    key = (id(node), frame.id)
    atom = m.definition(key)
    if not isinstance(atom, ClassAtom):
        atom = m.new.definitions[key] = ClassAtom(node, frame.module, frame.id)
    bases = [evaluate(m, base.value if isinstance(base, ast.Starred) else base) for base in node.bases]
    m.class_bases[atom] = one(Tuple(tuple(bases)))
    m.store.set((atom, BASES), m.class_bases[atom])
    number = m.context((frame.id, id(node), "class"))
    enclosing = (frame.id, *frame.enclosing) if frame.scope is not None else frame.enclosing
    body = Frame(number, frame.module, frame.module_frame, frame, None, None, enclosing)
    body.class_body = atom
    body.loops = frame.loops
    body.mark = m.store.mark()
    body.scope = None
    m.frame = body
    try:
        execute(m, node.body)
    finally:
        m.frame = frame
    m.alive = True
    for name in _bound_names(node):
        value = m.store.get((number, name))
        if value is not None:
            m.store.set((atom, name), value)
    if is_enum(m, atom):
        make_members(m, atom)
    _subclassed(m, atom, node)
    return one(atom)


def _subclassed(m: Machine, cls: ClassAtom, node: ast.ClassDef) -> None:
    """Run `__init_subclass__` of the bases for a new class."""
    from dslint.python.expressions import evaluate
    from dslint.python.frames import call_function

    keywords = {k.arg: evaluate(m, k.value) for k in node.keywords if k.arg is not None and k.arg != "metaclass"}
    for base in attributes.lineage(m, cls)[1:]:
        stored = m.store.get((base, "__init_subclass__")) if isinstance(base, ClassAtom) else None
        atom = stored.single if stored is not None else None
        function = atom.function if isinstance(atom, Bound) else atom
        if isinstance(function, Function):
            call_function(m, function, Arguments([one(cls)], keywords), node, owner=function.owner)
            return


def _bound_names(node: ast.ClassDef) -> list[str]:
    from dslint.python.scopes import Scope, _collect

    scope = Scope()
    _collect(list(node.body), scope)
    return list(scope.locals)


def is_dataclass(m: Machine, cls: ClassAtom) -> bool:
    """Return whether a class has the decorator `dataclass`."""
    for decorator in cls.node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        if "dataclass" in (name, cls.module.path_of(target).rpartition(".")[2]):
            return True
    return False


def construct(m: Machine, cls: ClassAtom, arguments: Arguments, node: ast.AST) -> Value:
    """Return a new object of a class of the project; its constructor has run."""
    if arguments.positional:
        member = looked_up(m, cls, "value", arguments.positional[0])
        if member is not None:
            return member
    made = m.made(node, cls)
    atom = made.single
    assert isinstance(atom, Instance)
    configdicts.constructed(m, cls, arguments, node)
    _forget_fields(m, atom)
    m.store.set((atom, "#made"), const(True))
    own = _initializer(m, cls)
    if own is None and arguments.written:
        note_class(m, cls, arguments, node)
    if is_named_tuple(m, cls):
        fill_named_tuple(m, cls, atom, arguments)
        return made
    if any(builtin_exception(base) is not None for base in attributes.lineage(m, cls)):
        m.store.set((atom, "args"), one(Tuple(tuple(arguments.positional))))
    if own is not None:
        from dslint.python.frames import call_function

        call_function(m, own, arguments.shifted(made), node, owner=own.owner)
        return made
    if _dataclass_fields(m, cls, made, arguments, node):
        return made
    for base in attributes.lineage(m, cls):
        if isinstance(base, str) and base and m.libraries.class_(base) is not None:
            from dslint.python.library import initialize

            initialize(m, base, arguments, atom, node)
            break
    return made


def _forget_fields(m: Machine, atom: Instance) -> None:
    """An object made again at the same place in the same calls starts without the fields of the one before."""
    if not atom.loop:
        return
    for name in tuple(m.store.names.get(atom, ())):
        m.store.set((atom, name), NOTHING)


def _initializer(m: Machine, cls: ClassAtom) -> Function | None:
    """Return the `__init__` that Python would run; `None` when none of the project comes first."""
    for base in attributes.lineage(m, cls):
        if isinstance(base, str):
            row = m.libraries.class_(base) if base else None
            if row is not None and row.constructor.parameters is not None:
                return None
            continue
        if is_dataclass(m, base):
            return None
        stored = m.store.get((base, "__init__"))
        function = stored.single if stored is not None else None
        if isinstance(function, Function):
            return function
    return None


def _dataclass_fields(m: Machine, cls: ClassAtom, made: Value, arguments: Arguments, node: ast.AST) -> bool:
    """Set the fields of a dataclass: of its bases first, in the order of their definition."""
    from dslint.python.dataclass_parsers import field_inputs

    order = [b for b in reversed(attributes.lineage(m, cls)) if isinstance(b, ClassAtom)]
    if not any(is_dataclass(m, b) for b in order):
        return False
    names: dict[str, tuple[ClassAtom, ast.AnnAssign]] = {}
    for base in order:
        for statement in base.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                names[statement.target.id] = (base, statement)
    given = dict(zip(names, arguments.positional, strict=False))
    given.update({k: v for k, v in arguments.keywords.items() if k in names})
    atom = made.single
    assert isinstance(atom, Instance)
    opened = arguments.open_keywords
    inputs = field_inputs(m, cls, atom, node) if opened is not None else {}
    for name, (base, statement) in names.items():
        value = given.get(name)
        if value is None and opened is not None and name in inputs:
            # `Config(**options)`: any value of the class that the annotation names.
            value = inputs[name].with_(m.varies(opened), 0, frozenset(), m.origin(opened))
        elif value is None:
            value = _field_default(m, base, name, statement, node)
            m.store.set((atom, ("at", name)), one(Written(statement.target, statement.value or statement.target)))
        else:
            m.store.set((atom, ("at", name)), place_of_keyword(arguments, name, node))
        m.store.set((atom, name), value)
    for base in order:
        stored = m.store.get((base, "__post_init__"))
        function = stored.single if stored is not None else None
        if isinstance(function, Function):
            from dslint.python.frames import call_function

            call_function(m, function, [made], node, owner=function.owner)
    _library_base(m, cls, atom, arguments, names.keys(), node)
    return True


def _library_base(
    m: Machine, cls: ClassAtom, atom: Instance, arguments: Arguments, own: Container[object], node: ast.AST
) -> None:
    """Run the constructor of the library class that a dataclass derives from, with the arguments that are for it."""
    from dslint.python.library import initialize

    base = next((b for b in attributes.lineage(m, cls) if isinstance(b, str) and m.libraries.class_(b)), "")
    row = m.libraries.class_(base)
    if row is not None and row.constructor.tags and m.store.get((atom, "#arguments")) is None:
        kept = {name: value for name, value in arguments.keywords.items() if name not in own}
        nodes = {key: value for key, value in arguments.nodes.items() if key not in own}
        given = Arguments(arguments.positional, kept, arguments.rest, arguments.open_keywords, nodes)
        initialize(m, base, given, atom, node)


def _field_default(m: Machine, cls: ClassAtom, name: str, statement: ast.AnnAssign, node: ast.AST) -> Value:
    """Return the default of a field: a plain value, or what `field(default=..., default_factory=...)` says."""
    from dslint.python.invoke import call_value

    stored = m.store.get((cls, name))
    if not isinstance(statement.value, ast.Call):
        return stored or const(None)
    called = statement.value.func
    word = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if word != "field":
        return stored or const(None)
    for keyword in statement.value.keywords:
        inner = m.store.get((cls, ("field", name, keyword.arg)))
        if inner is None:
            continue
        if keyword.arg == "default":
            return inner
        if keyword.arg == "default_factory":
            return call_value(m, inner, Arguments(), node)
    return m.thing(node, f"field `{name}` that is not given")
