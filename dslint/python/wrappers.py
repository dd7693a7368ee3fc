"""Objects that libraries wrap, unwrap and copy."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import replace

from dslint.python import attributes, containers, dictionaries, optiontable
from dslint.python.events import Event
from dslint.python.heap import CONTAINERS, CONTENT, ESCAPED, ITEMS, LENGTH, REST
from dslint.python.joins import join
from dslint.python.launches import taken_apart
from dslint.python.libraries import ClassRow, Row
from dslint.python.machine import Machine
from dslint.python.models import note_wrapper
from dslint.python.scopes import set_on_self
from dslint.python.values import NOTHING, TRUE, Atom, Bound, ClassAtom, Instance, Tuple, Value, const, one

PREPARED_MODEL = "accelerate.PreparedModel"
# A field of an object that a library gave another class in place: the path of that class.
BECOMES = "#becomes"
# The object inside a wrapped loader, optimizer or scheduler; the kinds of classes that wrap a model.
WRAPS = "#wraps"
_KINDS = ("ddp", "engine", "fsdp", "fabric-module", PREPARED_MODEL)


def wrapped(m: Machine, row: Row, value: Value, at: int, node: ast.AST, sure: bool) -> Value:
    """Return what a library makes of an argument, by the `wraps_as` of its row.

    `sure`: the parameter is a model, whatever is known of the argument.
    """
    table = row.extra.get("wraps_as")
    if not table:
        return value
    atoms: set[Atom] = set()
    for atom in value.atoms:
        made = _wrapped(m, table, atom, at, node, sure) if isinstance(atom, Instance) else atom
        if made is atom and isinstance(atom, Instance) and is_of_unknown_class(m, atom):
            becomes(m, atom, str(row.extra.get("unknown_becomes", "")))
        atoms.add(made)
    return Value(frozenset(atoms), value.varies, value.shape, value.made_by, None, value.origin)


def becomes(m: Machine, atom: Instance, cls: str) -> None:
    """Give an object another class in place, beside its own."""
    if cls:
        m.store.set((atom, BECOMES), const(cls))


def is_of_unknown_class(m: Machine, atom: Instance) -> bool:
    """Return whether nobody knows all that the class of an object defines."""
    if isinstance(atom.cls, str):
        return not atom.cls
    return any(isinstance(b, str) and m.libraries.class_(b) is None for b in attributes.lineage(m, atom.cls))


def _wrapped(m: Machine, table: Mapping[str, str], atom: Instance, at: int, node: ast.AST, sure: bool) -> Atom:
    if atom.cls in ("builtins.list", "builtins.tuple"):
        return atom
    target = next((t for c, t in table.items() if atom.cls and attributes.is_instance_of(m, atom.cls, c)), "")
    if not target and sure and not atom.cls:
        target = table.get("torch.nn.Module", "")
    cls = target.partition(" or ")[0]
    if not cls or cls == atom.cls or is_wrapper(m, atom):
        return atom
    made = m.instance(node, m.context((m.frame.id, "wrapped", at, atom)), cls, atom.loop)
    m.store.set((made, WRAPS), one(atom))
    m.store.set((atom, "#prepared"), const(True))
    if any(m.libraries.is_class(cls, kind) for kind in (PREPARED_MODEL, "fabric-module")):
        note_wrapper(m, one(atom), made)
    _copy_fields(m, atom, made)
    for base in m.libraries.lineage(cls):
        for name, part in base.fields.items():
            if part.word == "parameter" and name in _INNER:
                m.store.set((made, name), one(atom))
    return made


# The fields in which wrappers keep what they wrap.
_INNER = ("module", "_forward_module", "optimizer", "scheduler")


def _copy_fields(m: Machine, old: Instance, new: Instance) -> None:
    """Give a wrapper of a loader the dataset, sampler and contents of the loader inside."""
    names: list[object] = ["#yields", "#arguments", CONTENT, LENGTH]
    for row in m.libraries.lineage(old.cls) if isinstance(old.cls, str) else ():
        names += () if is_model(m, old) else row.fields  # a model keeps its own
        names += [("argument", name) for name in row.fields]
        names += [("argument", p.arg) for p in row.constructor.parameters.args] if row.constructor.parameters else []
    for name in names:
        stored = m.store.get((old, name))
        if stored is not None:
            m.store.set((new, name), stored)


def unknown_member(m: Machine, atom: Instance, name: str, node: ast.AST) -> Value | None:
    """Return a member that no row of the class lists: of the object inside, or of a class that it stands for."""
    if name == "__dict__":
        taken_apart(m, one(atom))
    if name == "_actions" and optiontable.is_parser(m, atom):
        return optiontable.actions(m, atom, node)
    if name.startswith("_") and not name.startswith("__"):
        optiontable.opened_by(m, [one(atom)], f"`{name}` of the parser is used")
    if not isinstance(atom.cls, str):
        return None
    _note_missing(m, atom, atom.cls, name, node)
    for row in m.libraries.lineage(atom.cls):
        extra = row.constructor.extra
        found = _of_inner(m, atom, str(extra.get("unknown_members", "")), name, node)
        if found is not None:
            return found
        for path in extra.get("stands_for", ()):
            method = m.libraries.method(path, name)
            if method is not None:
                return one(Bound(method.path, atom))
    return None


def _note_missing(m: Machine, atom: Instance, cls: str, name: str, node: ast.AST) -> None:
    """Note that code reads an attribute that a class, or one that it stands for, does not have."""
    read = node.func if isinstance(node, ast.Call) else node
    if not isinstance(read, ast.Attribute) or read.attr != name or name.startswith("_"):
        return
    row = m.libraries.class_(cls)
    paths = (cls, *(row.constructor.extra.get("stands_for", ()) if row is not None else ()))
    rows = {path: list(m.libraries.lineage(path)) for path in paths}
    if any(name in r.methods for found in rows.values() for r in found):
        return  # who calls a method of an engine knows that it is one
    for path, found in rows.items():
        listed = _own_members(found)
        if listed is None or name in listed or any(name in r.properties or name in r.fields for r in found):
            continue
        tags = frozenset(("missing-member",))
        m.events.append(Event(f"{path}.{name}", tags, read, m.frame.module, one(atom), {}, None, m.lanes, m.control))
        return


def _own_members(rows: list[ClassRow]) -> Collection[str] | None:
    """Return the members that the nearest class with a list of them has; `None` where none has one."""
    extras = (row.constructor.extra for row in rows)
    return next((extra["own_members"] for extra in extras if "own_members" in extra), None)


def note_hidden(m: Machine, base: Value, name: str, node: ast.AST) -> None:
    """Note a question by name (`hasattr`, `getattr`) for what the model inside a DDP has, and the DDP does not."""
    for atom in base.atoms if m.alive else ():
        if not isinstance(atom, Instance) or not isinstance(atom.cls, str) or not m.libraries.is_class(atom.cls, "ddp"):
            continue
        rows = list(m.libraries.lineage(atom.cls))
        listed = _own_members(rows)
        inner = m.store.get((atom, "module"))
        is_own = listed is None or name in listed or m.store.get((atom, name)) is not None
        if is_own or inner is None or any(name in r.methods or name in r.fields for r in rows):
            continue
        if inner.atoms and all(
            isinstance(a, Instance) and (_has(m, a, name) or _sets(m, a, name)) for a in inner.atoms
        ):
            tags = frozenset(("hidden-member",))
            path = f"{atom.cls}.{name}"
            m.events.append(Event(path, tags, node, m.frame.module, base, {}, None, m.lanes, m.control))
            return


def _sets(m: Machine, atom: Instance, name: str) -> bool:
    """Return whether a method of the class of an object, or of one above it, sets a field of that name."""
    lineage = attributes.lineage(m, atom.cls) if isinstance(atom.cls, ClassAtom) else ()
    return any(name in set_on_self(cls.node) for cls in lineage if isinstance(cls, ClassAtom))


def _of_inner(m: Machine, atom: Instance, form: str, name: str, node: ast.AST) -> Value | None:
    """Return a member of the object in a field when its class defines it, or when it is a field of it."""
    inner = m.store.get((atom, form.removeprefix("field "))) if form else None
    kept = [a for a in inner.atoms if isinstance(a, Instance) and _has(m, a, name)] if inner is not None else []
    kept = [a for a in kept if a is not atom]
    return attributes.read(m, Value(frozenset(kept)), name, node) if kept else None


def _has(m: Machine, atom: Instance, name: str) -> bool:
    if m.store.get((atom, name)) is not None:
        return True
    if isinstance(atom.cls, ClassAtom):
        return attributes.of_class(m, atom.cls, name, atom) is not None
    return any(name in (*r.methods, *r.properties, *r.fields) for r in m.libraries.lineage(atom.cls))


def is_endless(m: Machine, value: Value) -> bool:
    """Return whether iterating over a value never ends."""
    classes = [a.cls for a in value.atoms if isinstance(a, Instance) and isinstance(a.cls, str) and a.cls]
    return len(classes) == len(value.atoms) > 0 and all(
        any(row.constructor.extra.get("endless") for row in m.libraries.lineage(c)) for c in classes
    )


def is_model(m: Machine, atom: Instance) -> bool:
    """Return whether an object is a model for certain."""
    return bool(atom.cls) and attributes.is_instance_of(m, atom.cls, "torch.nn.Module")


def is_wrapper(m: Machine, atom: Instance) -> bool:
    """Return whether an object is a model that a library wraps for several ranks."""
    return isinstance(atom.cls, str) and m.libraries.is_class(atom.cls, *_KINDS)


def unwrapped(m: Machine, value: Value, depth: int = 0) -> Value:
    """Return the innermost `module` of wrapped models; other objects themselves."""
    found: Value | None = None
    for atom in value.atoms:
        inner = m.store.get((atom, "module")) if isinstance(atom, Instance) and is_wrapper(m, atom) else None
        part = unwrapped(m, inner, depth + 1) if inner is not None and depth < 6 else one(atom)
        found = part if found is None else join(found, part)
    return found if found is not None else value


def copied(m: Machine, value: Value, node: ast.AST) -> Value:
    """Return a new object like the old one."""
    found: Value | None = None
    for atom in value.atoms:
        part = (
            copied_object(m, atom, node, is_one_of_several=len(value.atoms) > 1)
            if isinstance(atom, Instance)
            else one(atom)
        )
        found = part if found is None else join(found, part)
    return found.with_(value.varies, value.shape, value.made_by) if found is not None else value


def copied_object(m: Machine, atom: Instance, node: ast.AST, *, is_one_of_several: bool) -> Value:
    """Return a new object like this one; beside others that the same place copies, it is one of its own."""
    made = m.made(node, atom.cls, m.content(atom))
    if is_one_of_several:
        made = one(m.instance(node, m.context((m.frame.turn or m.frame.id, "copy", atom)), atom.cls, atom.loop))
    new = made.single
    assert isinstance(new, Instance)
    if m.keeps_configs and atom.cls in CONTAINERS:
        containers.clear(m, new)
    m.copies.add(new)
    for name in (ITEMS, REST, LENGTH, "#keys", "#restkeys", "#yields", CONTENT):
        stored = m.store.get((atom, name))
        if stored is not None:
            m.store.set((new, name), stored)
    for key in dictionaries.known_keys(m, atom):
        stored = m.store.get((atom, ("key", key)))
        if stored is not None:
            m.store.set((new, ("key", key)), stored)
            m.store.set((new, ("at", key)), dictionaries.place_of(m, atom, key, node))
            m.store.set((new, ("maybe", key)), TRUE if dictionaries.may_lack(m, atom, key) else NOTHING)
    if isinstance(atom.cls, ClassAtom) or (atom.cls and not atom.cls.startswith("builtins.")):
        for field in list(m.store.names.get(atom, ())):
            if isinstance(field, str) and not field.startswith("#"):
                stored = m.store.get((atom, field))
                if stored is not None:
                    m.store.set((new, field), stored)
    return made


def deeply_copied(m: Machine, value: Value, node: ast.AST, path: tuple[str, ...] = ()) -> Value:
    """Return a copy of dictionaries and lists with copies of those in them; other objects are copied as a whole."""
    held = [atom for atom in value.atoms if isinstance(atom, Instance) and atom.cls in CONTAINERS]
    if held and len(held) == len(value.atoms):
        return _with_twins(m, value, node, path, {})
    return value if path else copied(m, value, node)


def _with_twins(
    m: Machine, value: Value, node: ast.AST, path: tuple[str, ...], twins: dict[Instance, Instance]
) -> Value:
    atoms = [
        _twin(m, atom, node, path, twins)
        if isinstance(atom, Instance) and atom.cls in CONTAINERS
        else Tuple(tuple(_with_twins(m, item, node, path, twins) for item in atom.items), atom.cls)
        if isinstance(atom, Tuple)
        else atom
        for atom in value.atoms
    ]
    return replace(value, atoms=frozenset(atoms))


def _twin(
    m: Machine, atom: Instance, node: ast.AST, path: tuple[str, ...], twins: dict[Instance, Instance]
) -> Instance:
    if atom not in twins:
        context = m.context((m.frame.turn or m.frame.id, "deep copy", path, len(twins)))
        new = twins[atom] = m.instance(node, context, atom.cls, m.frame.loops[-1].number if m.frame.loops else 0)
        containers.clear(m, new)
        for name in list(m.store.names.get(atom, ())):
            stored = m.store.get((atom, name))
            if stored is not None and name != ESCAPED:
                m.store.set((new, name), _with_twins(m, stored, node, path, twins))
    return twins[atom]
