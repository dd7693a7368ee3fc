"""Dictionaries that are DeepSpeed configurations: who gets them, and what they hold then (`snapshots.py`).

Kept only for who asks for it (`Machine.keeps_configs`). A configuration is what a row says that takes one, and a
dictionary that no library in view takes, but whose name says what it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from dslint.python.attributes import lineage
from dslint.python.binding import Arguments, BoundArguments
from dslint.python.events import Handed
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.places import ordered
from dslint.python.snapshots import Dictionary, Known, dictionary
from dslint.python.values import Atom, Bound, ClassAtom, Instance, Tuple, Value

# A name that says what the dictionary is; only then it counts without a reader in view.
NAMED = re.compile(r"(?:^|_)(?:ds|deepspeed)_?(?:config|conf|cfg|params)|^(?:ds|deepspeed)_?(?:zero|stage)", re.I)
# Who gets a configuration of which a registry makes an object: a runner that adds what it knows.
REGISTERED = "registry"
# Arguments of a Trainer, also of a class that nobody can read; those of a data set are called so, too.
TRAINING = re.compile(r"(?<!Data)TrainingArguments$")
# Names of functions that only look at what they are given.
_LOOKS = re.compile(
    r"(?:^|_)(?:print\w*|pprint|pformat|log\w*|info|warn\w*|debug|error|exception|dumps?|len|str|repr|type|bool|list"
    r"|isinstance|id|sorted|any|all|set|format|deepcopy|init_trackers|init_distributed|Init|save\w*|write\w*)$"
)


def taken(m: Machine, row: Row, bound: BoundArguments, node: ast.AST) -> None:
    """Keep what a configuration holds that a function or class of a library takes."""
    found = next((r.constructor for r in m.libraries.lineage(row.path) if "config_reader" in r.constructor.extra), row)
    reader = found.extra.get("config_reader")
    if reader is None:
        return
    for name in (found.extra.get("config"), found.extra.get("config_or")):
        value = bound.given.get(str(name))
        if value is not None and value.constants != (None,):
            _keep(m, str(reader), value, node)
            return


def by_name(m: Machine, name: str, arguments: Arguments, node: ast.AST) -> None:
    """Keep what a configuration holds that a class takes which can only be the arguments of a Trainer."""
    if m.keeps_configs and "deepspeed" in arguments.keywords and TRAINING.search(name):
        _keep(m, "hf", arguments.keywords["deepspeed"], node)


def constructed(m: Machine, cls: ClassAtom, arguments: Arguments, node: ast.AST) -> None:
    """Do so for a class of the project that derives from such a class, or is called so."""
    if m.keeps_configs and "deepspeed" in arguments.keywords:
        bases = (b for b in lineage(m, cls) if isinstance(b, str))
        is_known = any(m.libraries.is_class(base, "training-arguments") for base in lineage(m, cls) if base)  # type: ignore[arg-type]
        named = next((b for b in (cls.node.name, *bases) if is_known or TRAINING.search(b)), "")
        by_name(m, "TrainingArguments" if named else "", arguments, node)


def given_away(m: Machine, operands: Iterable[Value], node: ast.AST) -> bool:
    """Keep what dictionaries hold that unknown code gets and whose names tell; return whether it only looks at them."""
    called = node.func if isinstance(node, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if _LOOKS.search(name):
        return True
    reached = _reached(m, operands)
    for frame in dict.fromkeys((m.frame.id, m.frame.module_frame)) if reached else ():
        for value in _named(m, frame):
            _keep(m, "", Value(frozenset(a for a in value.atoms if a in reached)), node)
    return False


def leaving(m: Machine, result: Value | None = None) -> None:
    """Keep what dictionaries hold whose names say what they are, at the end of a function that nobody here calls."""
    frame = m.frame
    if not m.keeps_configs or frame.parent is None or frame.parent.function is not None or frame.function is None:
        return
    for value in _named(m, frame.id):
        _keep(m, "", value, frame.function.node)
    receiver = frame.receiver.single if frame.receiver is not None else None
    for value in _named(m, receiver) if isinstance(receiver, Instance) else ():
        _keep(m, "", value, frame.function.node)
    if result is not None and NAMED.search(frame.function.name):
        _keep(m, "", result, frame.function.node)


def end_of_module(m: Machine) -> None:
    """Do so at the end of a script."""
    for value in _named(m, m.frame.id):
        _keep(m, "", value, m.frame.module.tree)
    for name in list(m.store.names.get(m.frame.id, ())):
        held = m.store.get((m.frame.id, name)) if isinstance(name, str) else None
        atom = held.single if held is not None else None
        if isinstance(atom, Instance) and atom.cls == "builtins.dict" and m.store.get((atom, ("key", "type"))):
            _registered(m, dictionary(m, atom))


def _registered(m: Machine, found: Dictionary) -> None:
    """Keep the configuration in ``dict(type="DeepSpeedStrategy", ...)``, of which a registry makes an object."""
    named = found.items["type"].places[0].value if "type" in found.items else None
    text = named.value if isinstance(named, ast.Constant) else ast.unparse(named) if named is not None else ""
    row = m.libraries.registered_configs.get(str(text).rpartition(".")[2])
    if row is None or found.is_lost:
        return
    whole, members = row
    inner = found.items.get(whole)
    items = {name: item for name, item in found.items.items() if name in members}
    if inner is not None and isinstance(inner.value, Dictionary):
        found = replace(inner.value, items={**inner.value.items, **items})
    elif inner is None or inner.value == Known(None):
        found = replace(found, items=items)
    else:
        return  # a file, or what only a run knows
    m.events.append(Handed(REGISTERED, found, m.frame.module.tree, m.frame.module, False))


def _named(m: Machine, owner: object) -> list[Value]:
    names = [n for n in m.store.names.get(owner, ()) if isinstance(n, str) and NAMED.search(n)]
    return [value for name in names if (value := m.store.get((owner, name))) is not None]


def _keep(m: Machine, reader: str, value: Value, node: ast.AST, *, may: bool = False) -> None:
    may = may or len(value.atoms) > 1
    for atom in ordered(value.atoms):
        if not isinstance(atom, Instance):
            continue
        if atom.cls == "builtins.dict":
            m.events.append(Handed(reader, dictionary(m, atom), node, m.frame.module, may))
        else:
            inner = _inside(m, atom)
            if inner is not None:
                _keep(m, reader, inner, node, may=may)


def _inside(m: Machine, atom: Instance) -> Value | None:
    """Return the configuration of which a library has made an object that stands for it."""
    row = m.libraries.class_(atom.cls) if isinstance(atom.cls, str) else None
    extra = row.constructor.extra if row is not None else {}
    return m.store.get((atom, ("argument", extra["config"]))) if extra.get("config_reader") == "unknown" else None


def _reached(m: Machine, operands: Iterable[Value]) -> set[Atom]:
    """Return the dictionaries that values are or hold."""
    pending, found = [atom for value in operands for atom in value.atoms], set[Atom]()
    while pending:
        atom = pending.pop()
        if atom in found:
            continue
        found.add(atom)
        held = m.elements(atom) if isinstance(atom, Instance) else atom.items if isinstance(atom, Tuple) else ()
        pending += [inner for value in held for inner in value.atoms]
        if isinstance(atom, Bound):
            pending.append(atom.receiver)
    return {atom for atom in found if isinstance(atom, Instance) and atom.cls == "builtins.dict"}
