"""Parsers that fill dataclasses, and objects that only a run fills."""

from __future__ import annotations

import ast

from dslint.python import attributes, containers, namespaces
from dslint.python.binding import Arguments, BoundArguments, default_of
from dslint.python.environment import by_rank
from dslint.python.heap import CONTENT
from dslint.python.joins import join
from dslint.python.launches import field_option, library_field
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import (
    INPUT,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Function,
    Instance,
    Tuple,
    Unknown,
    Value,
    const,
    one,
    unknown,
)


def _into_dataclasses(
    m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST
) -> Value | None:
    """Return an object for each class that a parser was made with; a function gives the only one itself."""
    name = row.extra["dataclasses"]
    if receiver is None:
        classes = bound.given.get(name)
        return _inputs_of(m, classes, node) if classes is not None else None
    if not isinstance(receiver, Instance):
        return None
    classes = m.store.get((receiver, ("argument", name)))
    if classes is None:
        return None
    items = containers.exact_items(m, classes)
    if items is None:
        items = [classes] if any(isinstance(a, ClassAtom | Api) for a in classes.atoms) else None
    if items is None:
        return None
    found = [_inputs_of(m, item, node) for item in items]
    if m.truth(bound.given.get("return_remaining_strings", const(False)))[0]:
        found.append(containers.new_list(m, node, [], unknown(INPUT, "command line", 0, 0, "builtins.str")))
    return one(Tuple(tuple(found)))


def _inputs_of(m: Machine, classes: Value, node: ast.AST) -> Value:
    found: Value | None = None
    for atom in classes.atoms:
        if isinstance(atom, ClassAtom | Api):
            part = input_object(m, atom if isinstance(atom, ClassAtom) else m.libraries.canonical(atom.path), node)
        elif isinstance(atom, Function | Bound):
            from dslint.python.hooks import call_open

            call_open(m, one(atom), node)
            part = m.thing(node, "result of a command", kind=INPUT)
        else:
            part = m.thing(node, "command line", kind=INPUT)
        found = part if found is None else join(found, part)
    return found if found is not None else m.thing(node, "command line", kind=INPUT)


def input_object(m: Machine, cls: ClassAtom | str, node: ast.AST) -> Value:
    """Return an object of a class whose fields come from the command line or a file."""
    from dslint.python.library import initialize
    from dslint.python.objects import construct

    content = Value(frozenset((Unknown(INPUT, "command line"),)))
    made = m.made(node, cls, content)
    atom = made.single
    assert isinstance(atom, Instance)
    if isinstance(cls, str):
        if m.libraries.class_(cls) is not None:
            initialize(m, cls, _library_inputs(m, cls, atom), atom, node, made)
        return made
    for base in attributes.lineage(m, cls):
        if isinstance(base, str) and base and m.libraries.class_(base) is not None:
            initialize(m, base, _library_inputs(m, base, atom), atom, node)
            break
    construct(m, cls, Arguments([], field_inputs(m, cls, atom, node)), node)
    m.alive = True
    return made


def _library_inputs(m: Machine, path: str, atom: Instance) -> Arguments:
    """Return an unknown input for each parameter of the constructor of a library class."""
    rows = [row.constructor.parameters for row in m.libraries.lineage(path)]
    parameters = next((p for p in rows if p is not None), None)
    found = Arguments()
    if parameters is None:
        return found
    for parameter in (*parameters.args, *parameters.kwonlyargs):
        default = default_of(parameters, parameter.arg)
        if parameter.arg == "local_rank":
            continue
        kind = f"builtins.{type(default.value).__name__}" if isinstance(default, ast.Constant) else ""
        kind = kind if kind in namespaces.TYPES.values() else ""
        told = library_field(m, parameter.arg, kind)
        found.keywords[parameter.arg] = told or namespaces.input_of(atom, parameter.arg, kind)
    return found


def field_inputs(m: Machine, cls: ClassAtom, atom: Instance, node: ast.AST, depth: int = 0) -> dict[str, Value]:
    """Return an unknown input for each field of a dataclass of the project."""
    from dslint.python.objects import is_dataclass

    found: dict[str, Value] = {}
    for base in reversed(attributes.lineage(m, cls)):
        if not isinstance(base, ClassAtom) or not is_dataclass(m, base):
            continue
        for statement in base.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                found[name] = _field_input(m, base, atom, name, statement, depth)
    return found


def _field_input(m: Machine, cls: ClassAtom, atom: Instance, name: str, statement: ast.AnnAssign, depth: int) -> Value:
    annotation = statement.annotation
    if name == "local_rank":
        return by_rank(m, namespaces.RANK_FIELDS[name])
    kind = namespaces.TYPES.get(annotation.id, "") if isinstance(annotation, ast.Name) else ""
    told = field_option(m, name, kind)
    if told is not None:
        return told
    inner = _class_named(m, cls, annotation) if not kind and depth < 3 else None
    if inner is not None and inner is not cls:
        made = m.instance(statement, m.context((atom, name)), inner, atom.loop)
        m.store.set((made, CONTENT), Value(frozenset((Unknown(INPUT, "command line"),))))
        for field, value in field_inputs(m, inner, made, statement, depth + 1).items():
            m.store.set((made, field), value)
        return Value(frozenset((made,)), 0, 0, frozenset(), ("option", atom, name))
    found = namespaces.input_of(atom, name, kind)
    default = _plain_default(statement.value)
    if default is not None and found.number is not None:
        m.defaults[found.number] = default
    return found


def _plain_default(given: ast.expr | None) -> Value | None:
    """Return the default of a field that is a constant: `x: bool = False`, `x: bool = field(default=False)`."""
    keywords = given.keywords if isinstance(given, ast.Call) else []
    given = next((k.value for k in keywords if k.arg == "default"), given)
    return const(given.value) if isinstance(given, ast.Constant) else None


def _class_named(m: Machine, cls: ClassAtom, annotation: ast.expr) -> ClassAtom | None:
    """Return the dataclass of the project that an annotation names."""
    from dslint.python.objects import is_dataclass

    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str) and annotation.value.isidentifier():
        annotation = ast.Name(annotation.value, ast.Load())
    if not isinstance(annotation, ast.Name):
        return None
    stored = m.store.get((m.program.frame_of(m, cls.module), annotation.id))
    found = stored.single if stored is not None else None
    return found if isinstance(found, ClassAtom) and is_dataclass(m, found) else None
