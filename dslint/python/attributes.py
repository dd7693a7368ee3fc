"""Attributes: fields, methods, properties and class attributes, of the project and of libraries."""

from __future__ import annotations

import ast
import builtins

from dslint.python import parameters, ragged, ranknames, widths
from dslint.python.environment import ENVIRONMENT
from dslint.python.escapes import lose
from dslint.python.heap import BASES, CONTAINERS, CONTENT
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.several import of_each, with_member
from dslint.python.values import (
    INPUT,
    LOST_VALUE,
    NOTHING,
    OPAQUE,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    ModuleAtom,
    PerRank,
    Property,
    Static,
    Super,
    Tuple,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import LOST
from dslint.python.vocabulary import TRAINER, is_trainer

# A class of the project, or the path of a class of a library.
Base = ClassAtom | str


def lineage(m: Machine, cls: ClassAtom) -> list[Base]:
    """Return the classes in which Python looks for an attribute, nearest first."""
    peek = m.store.peek
    known = m.orders.get(cls)
    if known is not None and all(peek((c, BASES)) is value for c, value in known[1]):
        return known[0]
    found = _merged(m, cls, 0)
    if found is None:
        found = []
        _linearize(m, cls, found, 0)
    m.orders[cls] = (found, [(c, peek((c, BASES))) for c in found if isinstance(c, ClassAtom)])
    return found


def descendants(m: Machine, cls: ClassAtom) -> list[ClassAtom]:
    """Return a class and the classes of the project that derive from it, as far as anything was asked of them."""
    return [cls, *(other for other, (order, _) in m.orders.items() if other is not cls and cls in order)]


def _merged(m: Machine, cls: Base, depth: int) -> list[Base] | None:
    """Return the order that Python's own rule (C3) gives; `None` where there is none."""
    if depth > 12:
        return None
    parents = bases(m, cls)
    if len(parents) <= 1 and not parents:
        return [cls]
    orders = []
    for parent in parents:
        order = _merged(m, parent, depth + 1)
        if order is None:
            return None
        orders.append(order)
    pending = [list(order) for order in [*orders, parents]]
    found: list[Base] = [cls]
    while any(pending):
        head = next((p[0] for p in pending if p and not any(p[0] in other[1:] for other in pending)), None)
        if head is None:
            return None
        found.append(head)
        pending = [[c for c in p if c != head] for p in pending]
    return found


def _linearize(m: Machine, cls: Base, found: list[Base], depth: int) -> None:
    if depth > 12:
        return
    # A class that comes again later stands at its last place, as in Python for the usual diamonds.
    if cls in found:
        found.remove(cls)
    found.append(cls)
    for base in bases(m, cls):
        _linearize(m, base, found, depth + 1)


def bases(m: Machine, cls: Base) -> list[Base]:
    """Return the bases of a class that are known; unknown ones are ``""``."""
    if isinstance(cls, str):
        row = m.libraries.class_(cls)
        return list(row.bases) if row is not None else []
    stored = m.store.get((cls, BASES)) or m.class_bases.get(cls)
    inner = stored.single if stored is not None else None
    found: list[Base] = []
    for item in inner.items if isinstance(inner, Tuple) else ():
        for atom in item.atoms:
            if isinstance(atom, ClassAtom):
                found.append(atom)
            elif isinstance(atom, Api):
                found.append(atom.path)
            else:
                found.append("")
    return [*found, TRAINER] if is_trainer(m.libraries.own, cls.module.name, cls.node.name) else found


def is_instance_of(m: Machine, cls: Base, *wanted: str) -> bool:
    """Return whether a class is, or derives from, a library class (by its path or the `kind` of its row)."""
    if isinstance(cls, str):
        return m.libraries.is_class(cls, *wanted)
    return any(isinstance(base, str) and m.libraries.is_class(base, *wanted) for base in lineage(m, cls))


def read(m: Machine, base: Value, name: str, node: ast.AST) -> Value:
    """Return `base.name`."""
    found = of_each(m, with_member(base.atoms, name), lambda atom: _read(m, atom, base, name, node))
    if base.varies or base.made_by:
        keeps = base.made_by if not all(isinstance(a, Function | Bound) for a in found.atoms) else frozenset()
        return found.with_(base.varies, 0, keeps, base.origin)
    return found


def _read(m: Machine, atom: Atom, base: Value, name: str, node: ast.AST) -> Value:
    if isinstance(atom, Instance):
        return _of_instance(m, atom, name, node)
    if isinstance(atom, Api):
        return of_api(m, atom, name)
    if isinstance(atom, ModuleAtom):
        return m.program.attribute(m, atom.module, name)
    if isinstance(atom, ClassAtom):
        return of_class(m, atom, name, atom) or m.store.get((atom, name)) or _class_special(atom, name)
    if isinstance(atom, Super):
        return of_super(m, atom, name, node)
    if isinstance(atom, Const) and not hasattr(atom.kind, name):
        # It would raise, and whoever runs the script would have seen it: rather we do not know what is here.
        return unknown(OPAQUE, f"`{name}` of `{atom.value!r}`")
    if isinstance(atom, Const | PerRank | Tuple):
        return one(Bound(f"builtins.{_type_name(atom)}.{name}", atom))
    if isinstance(atom, Unknown):
        return _of_unknown(m, atom, base, name)
    stored = m.store.get((atom, name))
    if (
        stored is None
        and name in ("__name__", "__qualname__")
        and isinstance(atom, Function)
        and not getattr(atom.node, "decorator_list", ())
    ):
        return const(atom.name) if name == "__name__" else unknown(OPAQUE, "qualified name", type_="builtins.str")
    return stored if stored is not None else unknown(OPAQUE, f"`{name}` of a function")


def _type_name(atom: Atom) -> str:
    if isinstance(atom, Const):
        return atom.kind.__name__
    if isinstance(atom, Tuple):
        return atom.cls.removeprefix("builtins.")
    if isinstance(atom, PerRank):
        return type(atom.values[0]).__name__
    return "object"


def _class_special(cls: ClassAtom, name: str) -> Value:
    if name in ("__name__", "__qualname__"):
        return const(cls.node.name)
    return unknown(LOST_VALUE, f"class attribute `{name}` that nothing sets", LOST)


def _of_unknown(m: Machine, atom: Unknown, base: Value, name: str) -> Value:
    if atom.type and m.libraries.method(atom.type, name) is not None:
        return one(Bound(f"{atom.type}.{name}", atom), base.varies)
    number = ("attribute", base.number, name) if base.number is not None else None
    kind = Unknown(atom.kind, f"attribute `{name}` of an unknown value" if atom.kind != INPUT else atom.reason)
    return Value(frozenset((kind,)), m.varies(base), 0, base.made_by, number, base.origin)


def of_api(m: Machine, atom: Api, name: str) -> Value:
    """Return a member of a library module or class."""
    path = m.libraries.canonical(f"{atom.path}.{name}")
    if path == ENVIRONMENT:
        return one(Api(path))  # its items are those of `environment.py`
    value = m.libraries.value(path)
    if value is not None and value.returns.word != "opaque":
        from dslint.python.library import result_of_value

        return result_of_value(m, value)
    stored = m.store.get((Api(path), "#value"))
    return stored if stored is not None else one(Api(path))


def of_class(m: Machine, cls: ClassAtom, name: str, receiver: Atom | None) -> Value | None:
    """Return an attribute that a class or one of its bases defines, bound to `receiver`; `None` without one."""
    for base in lineage(m, cls):
        if isinstance(base, str):
            row = m.libraries.method(base, name) if base else None
            if row is not None and receiver is not None:
                return one(Bound(row.path, receiver))
            continue
        stored = m.store.get((base, name))
        if stored is not None and stored.atoms:
            return bound(m, stored, receiver)
    return None


def bound(m: Machine, stored: Value, receiver: Atom | None) -> Value:
    """Return a class attribute as it is read through an object: functions become methods."""
    atoms: set[Atom] = set()
    for atom in stored.atoms:
        if isinstance(atom, Function) and isinstance(receiver, Instance):
            atoms.add(Bound(atom, receiver))
        elif isinstance(atom, Static):
            atoms.add(atom.function)
        elif isinstance(atom, Bound) and isinstance(atom.receiver, ClassAtom) and isinstance(receiver, ClassAtom):
            atoms.add(Bound(atom.function, receiver))
        else:
            atoms.add(atom)
    return Value(frozenset(atoms), stored.varies, stored.shape, stored.made_by, stored.number, stored.origin)


def _of_instance(m: Machine, atom: Instance, name: str, node: ast.AST) -> Value:
    cls = atom.cls
    stored = m.store.get((atom, name))
    if isinstance(cls, ClassAtom):
        found = _of_project_object(m, atom, cls, stored, name, node)
        if found is not None:
            return found
    elif stored is not None:
        return stored
    if name == "__class__":
        return one(cls) if isinstance(cls, ClassAtom) else one(Api(cls)) if cls else unknown(OPAQUE, "class")
    library = _of_library_object(m, atom, cls, name, node)
    if library is not None:
        return library
    if isinstance(cls, ClassAtom):
        return _missing(m, atom, cls, name, node)
    return child(m, atom, name, node)


def _of_project_object(
    m: Machine, atom: Instance, cls: ClassAtom, stored: Value | None, name: str, node: ast.AST
) -> Value | None:
    from dslint.python.frames import call_function

    defined = of_class(m, cls, name, atom)
    if defined is not None and any(isinstance(a, Property) for a in defined.atoms):
        found = NOTHING
        for a in defined.atoms:
            if isinstance(a, Property):
                found = join(found, call_function(m, a.function, [one(atom)], node, owner=a.function.owner))
        return found
    return stored if stored is not None and stored.atoms else defined


def _of_library_object(m: Machine, atom: Instance, cls: Base, name: str, node: ast.AST) -> Value | None:
    from dslint.python.effects import method_in_place
    from dslint.python.library import result_of_property

    paths = [cls] if isinstance(cls, str) else [b for b in lineage(m, cls) if isinstance(b, str)]
    for path in paths:
        for row in m.libraries.lineage(path) if path else ():
            if name in row.properties:
                return result_of_property(m, row.properties[name], atom, node)
            if name in row.methods:
                return one(Bound(row.methods[name].path, atom))
            if name in row.fields:
                from dslint.python.library import field_value

                return field_value(m, row.fields[name], atom, name, node)
    if isinstance(cls, str) and (cls in CONTAINERS or cls.startswith("builtins.")):
        known = getattr(builtins, cls.removeprefix("builtins."), None)
        if isinstance(known, type) and issubclass(known, BaseException) and not callable(getattr(known, name, None)):
            return unknown(OPAQUE, f"`{name}` of an exception", m.deep_varies(one(atom)))
        if cls == "builtins.dict" and not hasattr(dict, name):
            from dslint.python import dictionaries

            # Of a kind whose items are attributes, too.
            return dictionaries.item_of(m, atom, const(name), node)
        return one(Bound(f"{cls}.{name}", atom))
    method = method_in_place(m, atom, name)
    if method is not None:
        return one(Bound(method.path, atom))
    from dslint.python.wrappers import unknown_member

    return unknown_member(m, atom, name, node)


def _missing(m: Machine, atom: Instance, cls: ClassAtom, name: str, node: ast.AST) -> Value:
    from dslint.python.invoke import call_method

    if m.program.defines(m, cls, "__getattr__"):
        result = call_method(m, one(atom), "__getattr__", [const(name)], node)
        if result is not None:
            return result
    if name == "__dict__":
        return m.dictionary_of(one(atom))
    return child(m, atom, name, node)


def child(m: Machine, atom: Instance, name: str, node: ast.AST | None = None) -> Value:
    """Return the object in a field that nothing has set yet: the same one at every place that reads it."""
    content = m.content(atom)
    number = ("field", atom, name)
    kind, varies, shape, made_by, origin = OPAQUE, 0, 0, frozenset[Instance](), None
    if content is not None:
        kinds = [a.kind for a in content.atoms if isinstance(a, Unknown)]
        kind = INPUT if INPUT in kinds else LOST_VALUE if LOST_VALUE in kinds else OPAQUE
        varies, shape, made_by, origin = content.varies, content.shape, content.made_by, content.origin
        varies = widths.asked(m, name, varies, shape) if shape & LOST and not atom.cls else varies
    is_open = kind != LOST_VALUE and (not atom.cls or isinstance(atom.cls, ClassAtom))
    ranked = ranknames.field(m, name, node) if is_open else None
    if ranked is not None:
        return ranked
    inner = m.instance(atom.node, m.context((atom, name)), "", atom.loop)
    if m.store.get((inner, CONTENT)) is None:
        reason = f"field `{name}` of {_described(atom, content)}"
        cell = Value(frozenset((Unknown(kind, reason),)), varies, shape, made_by, None, origin)
        m.store.set((inner, CONTENT), cell)
        parameters.note_field(m, atom, name, inner)
    ragged.field(m, atom, name, inner)
    return Value(frozenset((inner,)), 0, 0, frozenset(), number)


def _described(atom: Instance, content: Value | None) -> str:
    if isinstance(atom.cls, ClassAtom):
        return f"an object of `{atom.cls.node.name}`"
    if atom.cls:
        return f"an object of `{atom.cls}`"
    reasons = (inner.reason for inner in (content.atoms if content is not None else ()) if isinstance(inner, Unknown))
    return next(reasons, "an unknown object")


def of_super(m: Machine, atom: Super, name: str, node: ast.AST) -> Value:
    """Return an attribute that the classes after `owner` define."""
    cls = atom.receiver.cls if isinstance(atom.receiver, Instance) else atom.receiver
    order = lineage(m, cls) if isinstance(cls, ClassAtom) else []
    rest = order[order.index(atom.owner) + 1 :] if atom.owner in order else bases(m, atom.owner)
    for base in rest:
        if isinstance(base, str):
            row = m.libraries.method(base, name) if base else None
            if row is not None:
                return one(Bound(row.path, atom.receiver))
            if name == "__init__" and m.libraries.class_(base) is not None:
                return one(Bound(f"{base}.__init__", atom.receiver))
            continue
        stored = m.store.get((base, name))
        if stored is not None and stored.atoms:
            if any(isinstance(a, Property) for a in stored.atoms):
                return _of_project_object(m, atom.receiver, base, None, name, node) or NOTHING  # type: ignore[arg-type]
            return bound(m, stored, atom.receiver)
    return one(Bound(f"builtins.object.{name}", atom.receiver))


def write(m: Machine, base: Value, name: str, value: Value, node: ast.AST) -> None:
    """Do `base.name = value`."""
    from dslint.python.containers import is_owned
    from dslint.python.effects import replacing, watched
    from dslint.python.frames import call_function
    from dslint.python.models import patch

    for atom in base.atoms:
        if m.keeps_configs and (isinstance(atom, Api) or (isinstance(atom, Instance) and not atom.cls)):
            lose(m, value)  # whoever knows the object has it, too
        if isinstance(atom, Instance):
            setter = m.store.get((atom.cls, f"{name}.setter")) if isinstance(atom.cls, ClassAtom) else None
            if setter is not None and isinstance(setter.single, Function):
                call_function(m, setter.single, [one(atom), value], node, owner=setter.single.owner)
                continue
            if name in m.libraries.watched:
                watched(m, atom, name, value, node)
            if atom.cls == "builtins.dict":  # of a kind whose items are attributes, too
                from dslint.python import writing

                writing.store_item(m, one(atom), const(name), value, node)
                continue
            key = (atom, name)
            old = m.store.get(key)
            replacing(m, atom, old, value, node)
            sure = len(base.atoms) == 1 and is_owned(m, atom)
            m.store.set(key, value if sure or old is None else join(old, value, base.varies))
            if sure and m.store.get((atom, ("maybe", name))) is not None:
                m.store.set((atom, ("maybe", name)), NOTHING)
        elif isinstance(atom, ModuleAtom):
            m.store.set((m.program.frame_of(m, atom.module), name), value)
        elif isinstance(atom, Api):
            m.store.set((Api(m.libraries.canonical(f"{atom.path}.{name}")), "#value"), value)
            patch(m, atom.path, name, value)
        elif isinstance(atom, ClassAtom | Function):
            m.store.set((atom, name), value)
