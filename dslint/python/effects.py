"""What a call of a library leaves behind in its arguments: contents that are equal now, or that differ by rank."""

from __future__ import annotations

import ast

from dslint.python import attributes, configdicts, containers, dictionaries, handed, modes, parameters, seeds, wrappers
from dslint.python.agreement import agree, make_same
from dslint.python.binding import BoundArguments
from dslint.python.events import Event
from dslint.python.heap import CONTENT, RECEIVED, REGISTERED, UNWRITTEN
from dslint.python.libraries import LABELS, Row
from dslint.python.machine import Machine
from dslint.python.places import ordered
from dslint.python.values import (
    OPAQUE,
    Atom,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    Unknown,
    Value,
    Written,
    const,
    one,
)
from dslint.python.varies import RANK

_GRADIENTS = frozenset({"cuts-gradient", "passes-gradient"})


def effects(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST) -> None:
    """Change the arguments as the row says."""
    if m.keeps_configs:
        configdicts.taken(m, row, bound, node)
    for name in row.makes_same:
        value = bound.given.get(name)
        if value is not None:
            make_same(m, value, bound.nodes.get(name), row, bound, node)
    for name in row.makes_own:
        value = bound.given.get(name)
        if value is not None:
            _taint(m, value, RANK, (m.frame.module, node))
    if row.tags & _GRADIENTS:
        for name in row.makes_same:
            value = bound.given.get(name)
            if "cuts-gradient" in row.tags or (value is not None and m.made_by(value)):
                _mark(m, value, row, node)
    if "seeds" in row.tags and "self" in row.changes and isinstance(receiver, Instance):
        _seed(m, bound.given.get(row.extra.get("seed", "")), receiver)
    elif "seeds" in row.tags:
        seeds.seeded(m, row, bound)
    modes.changed(m, row, bound, receiver)
    if "adds-up" in row.tags and isinstance(receiver, Instance):
        handed.added_up(m, receiver, bound, node)
    for key in ("adds", "adds_all"):
        if key in row.extra and isinstance(receiver, Instance):
            containers.keep(m, receiver, bound.given.get(row.extra[key]), node, is_item=key == "adds")
    if "sets_field" in row.extra and receiver is not None:
        word, value = (bound.given.get(parameter) for parameter in row.extra["sets_field"])
        known = word.single if word is not None else None
        if isinstance(known, Const) and isinstance(known.value, str) and value is not None:
            attributes.write(m, one(receiver), known.value, value, node)
            m.store.set((receiver, (REGISTERED, known.value)), const(True))
    if (
        "keeps_arguments" in row.extra
        and isinstance(receiver, Instance)
        and not bound.extra
        and "frame" not in bound.given
    ):
        attributes.write(m, one(receiver), row.extra["keeps_arguments"], _arguments_here(m, node), node)
    becomes = row.extra.get("becomes")
    if becomes:
        value = bound.given.get(row.extra.get("wraps", ""))
        for atom in value.atoms if value is not None else ():
            if isinstance(atom, Instance):
                wrappers.becomes(m, atom, becomes)
    for name, cls in row.extra.get("taken_as", {}).items():
        value = bound.given.get(name)
        for atom in value.atoms if value is not None else ():
            if isinstance(atom, Instance) and wrappers.is_of_unknown_class(m, atom):
                wrappers.becomes(m, atom, str(cls))


def _arguments_here(m: Machine, node: ast.AST) -> Value:
    """Return a dictionary of the arguments of the function that runs: what `save_hyperparameters()` keeps."""
    function = m.frame.function.node if m.frame.function is not None else None
    given = function.args if isinstance(function, ast.FunctionDef) else None
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)][1:] if given is not None else []
    pairs = [(name, m.store.get((m.frame.id, name))) for name in names]
    place = one(Written(node, node))
    parts: list[tuple[Value | None, Value, Value]] = [(const(n), v, place) for n, v in pairs if v is not None]
    rest = m.store.get((m.frame.id, given.kwarg.arg)) if given is not None and given.kwarg is not None else None
    return dictionaries.made_of(m, node, [*parts, (None, rest, place)] if rest is not None else parts)


def _seed(m: Machine, seed: Value | None, generator: Instance) -> None:
    """Let a generator differ between the ranks as its seed does."""
    if seed is not None:
        state = Unknown(OPAQUE, "state of a generator")
        origin = m.origin(seed)
        m.store.set((generator, CONTENT), Value(frozenset((state,)), m.varies(seed), 0, frozenset(), None, origin))


def _mark(m: Machine, value: Value | None, row: Row, node: ast.AST) -> None:
    """Note in what a call fills that gradients do not flow back through it: the call is among what has made it."""
    mark = frozenset((m.instance(node, m.context((m.frame.id, row.path)), row.path, 0),))
    for atom in value.atoms if value is not None else ():
        if isinstance(atom, Instance):
            held = m.store.get((atom, CONTENT)) or Value(frozenset((Unknown(OPAQUE, RECEIVED),)))
            m.store.set((atom, CONTENT), Value(held.atoms, held.varies, held.shape, held.made_by | mark))


def class_in_place(m: Machine, atom: Instance) -> str:
    """Return the class that a library gave to an object in place; empty without one."""
    found = m.store.get((atom, wrappers.BECOMES))
    return str(found.constants[0]) if found is not None and found.constants else ""


def method_in_place(m: Machine, atom: Instance, name: str) -> Row | None:
    """Return a method of the class that an object got in place, or of the only class it stands for that has one."""
    path = class_in_place(m, atom)
    method, row = m.libraries.method(path, name), m.libraries.class_(path)
    if method is not None or row is None:
        return method
    named = [m.libraries.method(inner, name) for inner in row.constructor.extra.get("stands_for", ())]
    found = [inner for inner in named if inner is not None]
    return found[0] if len(found) == 1 else None


def freezing(m: Machine, base: Value, value: Value, node: ast.AST) -> None:
    """Note that `parameter.requires_grad = value` freezes a parameter, or makes it trainable."""
    event = Event("torch.Tensor.requires_grad", frozenset(("freezes",)), node, m.frame.module, base,
                  {"requires_grad": value}, None, m.lanes, m.control)  # fmt: skip
    event.snapshot = {"requires_grad": (m.varies(value), m.shape(value), m.made_by(value))}
    m.events.append(event)


def writing_item(m: Machine, base: Value, node: ast.AST, value: Value | None = None) -> None:
    """Note that `tensor[rows] = value` writes into a parameter, or into what may be a tensor."""
    if _is_all(m, base, "torch.nn.Parameter"):
        _written(m, base, "writes-parameter", "__setitem__", node)
    elif _is_all(m, base, "torch.Tensor", ""):
        _written(m, base, "writes-item", "__setitem__", node, value)


def writing_data(m: Machine, base: Value, node: ast.AST) -> None:
    """Note that `parameter.data = value` gives a parameter other numbers."""
    if parameters.of(m, base) is not None:
        _written(m, base, "writes-parameter", "data", node)


def writing_over(m: Machine, old: Value, target: ast.expr) -> None:
    """Note that `layer.weight *= 2` writes in place; a name that is none of a parameter is bound to a new object."""
    if isinstance(target, ast.Attribute) or _is_all(m, old, "torch.nn.Parameter"):
        writing_item(m, old, target)


def replacing(m: Machine, atom: Instance, old: Value | None, value: Value, node: ast.AST) -> None:
    """Note that `model.head = Linear(...)` puts another layer in the place of one that a model has.

    What the model of a library has is not known, but nobody gives it a layer that it does not run.
    """
    part = value.single
    is_new = old is None and not (isinstance(atom.cls, str) and atom.cls)
    if is_new or not isinstance(part, Instance) or (old is not None and part == old.single):
        return
    if not attributes.is_instance_of(m, part.cls, "torch.nn.Module", "torch.nn.Parameter"):
        return
    if attributes.is_instance_of(m, atom.cls, "torch.nn.Module"):
        event = Event("torch.nn.Module.__setattr__", frozenset(("replaces-part",)), node, m.frame.module, one(atom),
                      {"value": value}, None, m.lanes, m.control)  # fmt: skip
        m.events.append(event)


def _is_all(m: Machine, value: Value, *classes: str) -> bool:
    """Return whether a value is certainly an object of one of some classes; empty: of an unknown one."""
    made = [a for a in value.atoms if isinstance(a, Instance)]
    named = tuple(path for path in classes if path)
    is_open = len(named) < len(classes)
    found = ((is_open and not a.cls) or attributes.is_instance_of(m, a.cls, *named) for a in made)
    return bool(made) and len(made) == len(value.atoms) and all(found)


def _written(m: Machine, base: Value, tag: str, name: str, node: ast.AST, value: Value | None = None) -> None:
    path = f"torch.{'nn.Parameter' if tag == 'writes-parameter' else 'Tensor'}.{name}"
    event = Event(path, frozenset((tag,)), node, m.frame.module, base, {}, None, m.lanes, m.control)
    event.snapshot = {"self": (m.varies(base), m.shape(base), m.made_by(base))}
    place = m.origin(value) if value is not None else None
    if value is not None:
        event.arguments["value"] = value
        event.snapshot["value"] = (m.varies(value), 0, frozenset())
    if place is not None:
        event.origins["value"] = place
    m.events.append(event)


def around_override(m: Machine, atom: Instance, name: str, method: Value, result: Value, node: ast.AST) -> Value:
    """Do what a library does around a method that a subclass of the project overrides; return what it then gives."""
    from dslint.python.binding import Arguments
    from dslint.python.library import call_row

    if not m.alive or not any(isinstance(a, Bound) and isinstance(a.function, Function) for a in method.atoms):
        return result
    row = next((r for r in _overridden(m, atom, name) if r.extra.get("around_overrides")), None)
    if row is None:
        return result
    call_row(m, row, Arguments(), atom, node, one(atom))
    if row.varies != 0:
        return result
    agree(m, result, 0, 0, node)
    return Value(result.atoms, 0, 0, result.made_by)


def _overridden(m: Machine, atom: Instance, name: str) -> list[Row]:
    bases = (
        [b for b in attributes.lineage(m, atom.cls) if isinstance(b, str)] if isinstance(atom.cls, ClassAtom) else []
    )
    found = (m.libraries.method(base, name) for base in bases if base)
    return [row for row in found if row is not None]


def _taint(m: Machine, value: Value, varies: int, origin: object) -> None:
    for atom in value.atoms:
        if isinstance(atom, Instance):
            for name in (CONTENT, UNWRITTEN):
                held = m.store.get((atom, name))
                if held is not None:
                    changed = Value(held.atoms, held.varies | varies, held.shape, held.made_by, None, origin)  # type: ignore[arg-type]
                    m.store.set((atom, name), changed)
            for item in m.elements(atom):
                _taint(m, item, varies, origin)


def watched(m: Machine, atom: Instance, name: str, value: Value, node: ast.AST) -> None:
    """Note that a field of a library object is set which the library looks at; also of what may be such an object."""
    bases = attributes.lineage(m, atom.cls) if isinstance(atom.cls, ClassAtom) else [atom.cls]
    rows = (row for base in bases if isinstance(base, str) and base for row in m.libraries.lineage(base))
    named = (row.properties[name] for row in rows if name in row.properties)
    tag = m.libraries.watched[name]
    found = next((row for row in named if tag in row.tags), None)
    if found is not None or (tag == LABELS and (not atom.cls or isinstance(atom.cls, ClassAtom))):
        path, tags = (found.path, found.tags) if found is not None else ("", frozenset((tag,)))
        event = Event(path, tags, node, m.frame.module, one(atom), {"value": value}, None, m.lanes, m.control)
        event.items = {"value": m.elements(value.single)} if isinstance(value.single, Instance) else {}
        m.events.append(event)


def growing(m: Machine, target: ast.expr, value: Value, node: ast.AST) -> None:
    """Note that a list in such a field gets more: `args.label_names += ["id"]`, `args.label_names.append("id")`."""
    from dslint.python.expressions import evaluate

    if isinstance(target, ast.Attribute) and m.libraries.watched.get(target.attr) == LABELS:
        for atom in ordered(evaluate(m, target.value).atoms):
            if isinstance(atom, Instance):
                watched(m, atom, target.attr, value, node)


def note_loaders(m: Machine, operands: list[Value], node: ast.AST) -> None:
    """Note that unknown code gets hold of a loader or a sampler: it may divide it, or tell it the epoch."""
    atoms = [atom for value in operands for atom in value.atoms]
    kept = [a for a in atoms if isinstance(a, Instance) and isinstance(a.cls, str) and _is_of_loader(m, a.cls)]
    if kept:
        given = {f"*{at}": one(atom) for at, atom in enumerate(kept)}
        tags = frozenset(("takes-loader",))
        m.events.append(Event("", tags, node, m.frame.module, None, given, None, m.lanes, m.control))


def note_length(m: Machine, asked: Value, node: ast.AST) -> None:
    """Note that the program asks how many batches a loader has."""
    loaders = [a for a in asked.atoms if isinstance(a, Instance) and isinstance(a.cls, str) and a.cls]
    if (
        loaders
        and len(loaders) == len(asked.atoms)
        and all(m.libraries.is_class(str(a.cls), "loader") for a in loaders)
    ):
        tags = frozenset(("asks-length",))
        m.events.append(Event("builtins.len", tags, node, m.frame.module, asked, {}, None, m.lanes, m.control))


def _is_of_loader(m: Machine, cls: str) -> bool:
    return bool(cls) and m.libraries.is_class(cls, "loader", "distributed-sampler")
