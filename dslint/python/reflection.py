"""Builtins that look at objects and classes, and those of the environment."""

from __future__ import annotations

import ast

from dslint.python import attributes, dictionaries, functions
from dslint.python.binding import Arguments
from dslint.python.escapes import escape
from dslint.python.joins import join
from dslint.python.launches import reopened, taken_apart
from dslint.python.machine import Machine
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    Api,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    Partial,
    Tuple,
    Unknown,
    Value,
    const,
    one,
)


def _isinstance(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.arithmetic import scalar

    if len(arguments.positional) != 2:
        return None
    value, wanted = arguments.positional
    answers = {
        is_of_kind(m, atom, kind)
        for atom in value.atoms
        for kind in (wanted.atoms if wanted.single is not None else ())
    }
    if len(answers) == 1 and None not in answers and wanted.single is not None:
        return const(answers.pop())
    number = ("isinstance", value.number, wanted.single) if value.number is not None and wanted.single else None
    found = scalar(m, (), "builtins.bool", number)
    return found.with_(value.varies)


def is_of_kind(m: Machine, atom: object, kind: object) -> bool | None:
    """Return whether something is of a class, or of one of several; `None` when nobody knows."""
    if isinstance(kind, Tuple):
        answers = [is_of_kind(m, atom, item.single) for item in kind.items]
        return True if True in answers else None if None in answers else False
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        order = attributes.lineage(m, atom.cls)
        if isinstance(kind, ClassAtom):
            return True if kind in order else None if "" in order else False
        if isinstance(kind, Api):
            known = attributes.is_instance_of(m, atom.cls, kind.path)
            return (
                True
                if known
                else None
                if any(isinstance(b, str) and m.libraries.class_(b) is None for b in order)
                else False
            )
    if (
        isinstance(atom, Instance)
        and isinstance(kind, Api)
        and atom.cls in ("builtins.list", "builtins.dict", "builtins.set")
    ):
        return (
            bool(kind.path == atom.cls)
            if kind.path.startswith("builtins.")
            else False
            if m.libraries.class_(kind.path)
            else None
        )
    if isinstance(atom, Const | Tuple) and isinstance(kind, Api) and kind.path.startswith("builtins."):
        name = kind.path.removeprefix("builtins.")
        type_ = getattr(__import__("builtins"), name, None)
        if isinstance(type_, type):
            return (
                isinstance(atom.value, type_) if isinstance(atom, Const) else kind.path in (atom.cls, "builtins.object")
            )
    if (
        isinstance(atom, Instance)
        and isinstance(kind, Api)
        and atom.cls
        and m.libraries.class_(str(atom.cls)) is not None
    ):
        return True if m.libraries.is_class(str(atom.cls), kind.path) else None
    return None


def _getattr(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.wrappers import note_hidden

    if len(arguments.positional) < 2:
        return None
    base, name = arguments.positional[:2]
    single = name.single
    default = arguments.positional[2] if len(arguments.positional) > 2 else None
    if not isinstance(single, Const) or not isinstance(single.value, str):
        operands = [base, name] + ([default] if default is not None else [])
        return m.thing(node, "attribute with a computed name", operands)
    if default is not None:
        note_hidden(m, base, single.value, node)
    found = NOTHING
    for atom in base.atoms:
        has = has_attribute(m, atom, single.value)
        if has is not False:
            found = join(found, attributes.read(m, one(atom), single.value, node))
        if has is not True and default is not None:
            found = join(found, default)
    return found.with_(base.varies, 0, base.made_by)


def has_attribute(m: Machine, atom: object, name: str) -> bool | None:
    """Return whether an object has an attribute; `None` when nobody knows."""
    if isinstance(atom, Instance):
        stored = m.store.get((atom, name))
        if stored is not None and stored.atoms:
            return None if dictionaries.may_lack(m, atom, name) else True
        if isinstance(atom.cls, ClassAtom):
            if attributes.of_class(m, atom.cls, name, atom) is not None:
                return True
            return None
    return None


def _setattr(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    if len(arguments.positional) == 3:
        base, name, value = arguments.positional
        single = name.single
        if isinstance(single, Const) and isinstance(single.value, str):
            attributes.write(m, base, single.value, value, node)
        elif names := [text for text in name.constants or () if isinstance(text, str)]:
            for text in names:  # one of these; the others keep what they hold
                held = attributes.read(m, base, text, node)
                attributes.write(m, base, text, join(held, value), node)
        else:
            escape(m, base)
            reopened(m, base)
            _any_field(m, base, value)
    return const(None)


def _any_field(m: Machine, base: Value, value: Value) -> None:
    """Set some field of an object, nobody knows which: each one may hold the value now."""
    for atom in base.atoms:
        for name in list(m.store.names.get(atom, ())) if isinstance(atom, Instance | ClassAtom) else ():
            held = m.store.get((atom, name)) if isinstance(name, str) and not name.startswith(("#", "__")) else None
            if held is not None and held.constants is not None:
                m.store.set((atom, name), join(held, value))


def _hasattr(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.wrappers import note_hidden

    if len(arguments.positional) != 2:
        return None
    base, name = arguments.positional
    single = name.single
    if isinstance(single, Const) and isinstance(single.value, str):
        note_hidden(m, base, single.value, node)
        answers = {has_attribute(m, atom, single.value) for atom in base.atoms}
        if answers == {True}:
            return const(True)
    number = ("hasattr", base.number, single) if base.number is not None else None
    return Value(
        frozenset((Unknown(OPAQUE, "whether an attribute is there", "builtins.bool"),)),
        base.varies,
        0,
        frozenset(),
        number,
    )


def _partial(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    if not arguments.positional or arguments.rest is not None or arguments.open_keywords is not None:
        return None
    keywords = tuple(arguments.keywords.items())
    return one(Partial(arguments.positional[0], tuple(arguments.positional[1:]), keywords))


def _wrapping(cls: type) -> functions.Special:
    def handler(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
        value = functions._first(arguments)
        atom = value.single if value is not None else None
        return one(cls(atom)) if isinstance(atom, Function) else None

    return handler


def _classmethod(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = functions._first(arguments)
    atom = value.single if value is not None else None
    if isinstance(atom, Function) and atom.owner is not None:
        return one(Bound(atom, atom.owner))
    return None


def _same_function(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """`functools.wraps(f)` and the like give a decorator that returns its argument."""
    return one(Api("dslint.identity"))


def _identity(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    return functions._first(arguments)


def _environment(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.environment import set_variable, variable

    name = functions._first(arguments) or arguments.keywords.get("key")
    if name is None:
        return None
    default = (
        arguments.positional[1] if len(arguments.positional) > 1 else arguments.keywords.get("default", const(None))
    )
    _ = set_variable
    return variable(m, name, default, node)


def _set_default(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    return _environment(m, arguments, node)


def _update_environment(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    from dslint.python.dictionaries import known_keys
    from dslint.python.environment import set_variable

    for name, value in arguments.keywords.items():
        set_variable(m, const(name), value, node)
    atom = arguments.positional[0].single if arguments.positional else None
    if isinstance(atom, Instance) and atom.cls == "builtins.dict":
        for key in known_keys(m, atom):
            stored = m.store.get((atom, ("key", key)))
            if stored is not None:
                set_variable(m, const(key), stored, node)
    return const(None)


def _vars(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = functions._first(arguments)
    if value is not None:
        taken_apart(m, value)
        found = _options(m, value, node)
        if found is not None:
            return found
    return m.thing(node, "fields of an object", (value,), varies=m.deep_varies(value)) if value is not None else None


_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")


def _options(m: Machine, value: Value, node: ast.AST) -> Value | None:
    """Return a dictionary with the fields of a namespace that has no others; `None` for other objects."""
    from dslint.python import containers, parsers, writing

    namespace = value.single
    if not isinstance(namespace, Instance) or namespace.cls not in _NAMESPACES or not parsers.is_closed(m, namespace):
        return None
    made = m.made(node, "builtins.dict")
    atom = made.single
    assert isinstance(atom, Instance)
    containers.clear(m, atom)
    for name in tuple(m.store.names.get(namespace, ())):
        held = m.store.get((namespace, name)) if isinstance(name, str) and name.isidentifier() else None
        if held is not None and held.atoms:
            writing.store_item(m, made, const(name), held, node)
    return made


def _asdict(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    """Return the fields of a dataclass object as a dictionary, those of objects inside as well."""
    value = functions._first(arguments)
    return _fields_of(m, value, node, ()) if value is not None else None


def _fields_of(m: Machine, value: Value, node: ast.AST, path: tuple[str, ...]) -> Value | None:
    from dslint.python import containers, writing
    from dslint.python.objects import is_dataclass
    from dslint.python.wrappers import deeply_copied

    atom = value.single
    if not isinstance(atom, Instance) or not isinstance(atom.cls, ClassAtom) or len(path) > 4:
        return None
    order = [base for base in attributes.lineage(m, atom.cls) if isinstance(base, ClassAtom)]
    if len(order) != len(attributes.lineage(m, atom.cls)) or not any(is_dataclass(m, base) for base in order):
        return None
    names = [
        part.target.id
        for base in reversed(order)
        for part in base.node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    held = {name: m.store.get((atom, name)) for name in names}
    if not held or any(found is None for found in held.values()):
        return None
    made = m.made(node, "builtins.dict")
    if path:
        made = one(m.instance(node, m.context((m.frame.turn or m.frame.id, path)), "builtins.dict", atom.loop))
    inner = made.single
    assert isinstance(inner, Instance)
    containers.clear(m, inner)
    for name, found in held.items():
        assert found is not None
        part = _fields_of(m, found, node, (*path, name)) or deeply_copied(m, found, node, (*path, name))
        place = m.store.get((atom, ("at", name)))
        writing.store_item(m, made, const(name), part, node, place)
    return made


def _type(m: Machine, arguments: Arguments, node: ast.AST) -> Value | None:
    value = functions._first(arguments)
    atom = value.single if value is not None else None
    if isinstance(atom, Const) and atom.kind in (bool, int, float, str) and len(arguments.positional) == 1:
        return one(Api(f"builtins.{atom.kind.__name__}"))
    is_known = isinstance(atom, Instance) and atom.cls not in ("", "builtins.Exception")
    if isinstance(atom, Instance) and is_known and len(arguments.positional) == 1:
        return one(atom.cls if isinstance(atom.cls, ClassAtom) else Api(atom.cls))
    if value is None or len(arguments.positional) > 1:
        return None
    # Objects that differ in what they hold are of one class.
    return m.thing(node, "class of an object", varies=value.varies)
