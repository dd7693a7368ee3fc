"""Exceptions: what `raise` throws, which handler catches it, and what the handler's name holds."""

from __future__ import annotations

import ast
import builtins

from dslint.python import attributes
from dslint.python.binding import Arguments
from dslint.python.heap import Outcome
from dslint.python.joins import join
from dslint.python.machine import Machine
from dslint.python.values import NOTHING, Api, Atom, ClassAtom, Instance, Tuple, Value, one

GENERIC = "builtins.Exception"


def builtin_exception(path: object) -> type[BaseException] | None:
    """Return the exception class of Python at a path."""
    if not isinstance(path, str) or not path.startswith("builtins."):
        return None
    found = getattr(builtins, path.removeprefix("builtins."), None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def new_exception(m: Machine, path: str, arguments: Arguments, node: ast.AST) -> Value:
    """Return a new exception of a class of Python."""
    made = m.made(node, path)
    atom = made.single
    assert isinstance(atom, Instance)
    m.store.set((atom, "args"), one(Tuple(tuple(arguments.positional))))
    return made


def thrown(m: Machine, value: Value, node: ast.AST) -> Value:
    """Return what `raise value` throws: a class is called first."""
    from dslint.python.invoke import call_value

    found = NOTHING
    for atom in value.atoms:
        is_class = isinstance(atom, ClassAtom) or (isinstance(atom, Api) and builtin_exception(atom.path) is not None)
        found = join(found, call_value(m, one(atom), Arguments(), node) if is_class else one(atom))
    return found


def is_clean_exit(m: Machine, value: Value | None) -> bool:
    """Return whether what is raised ends the process with status 0: `raise SystemExit`, if nobody catches it."""
    if value is None or not value.atoms:
        return False
    for atom in value.atoms:
        if not isinstance(atom, Instance) or atom.cls != "builtins.SystemExit":
            return False
        given = m.store.get((atom, "args"))
        status = given.single.items if given is not None and isinstance(given.single, Tuple) else None
        if status is None or (status and not is_success(status[0])):
            return False
    return True


def is_success(status: Value | None) -> bool:
    """Return whether a status is 0 on all ranks, as it is where none is given."""
    if status is None:
        return True
    known = status.constants
    return known is not None and all(value is None or value == 0 for value in known)


def caught(m: Machine, handler: ast.ExceptHandler, wanted: Value | None, raised: list[Outcome]) -> Value:
    """Return what the name of a handler may hold: what was raised and matches, and what Python itself may raise."""
    found = NOTHING
    for outcome in raised:
        for atom in outcome.value.atoms if outcome.value is not None else ():
            if wanted is None or _may_match(m, atom, wanted):
                found = join(found, one(atom), outcome.control)
    is_own = wanted is not None and all(_is_own(m, atom) for atom in wanted.atoms)
    if is_own and found.atoms and all(o.value is not None for o in raised):
        return found
    return join(found, m.thing(handler, "caught exception", cls=GENERIC))


def _is_own(m: Machine, atom: Atom) -> bool:
    """Return whether a handler is for exceptions of the project alone, which only its own `raise` statements make."""
    if isinstance(atom, Tuple):
        return all(_is_own(m, inner) for item in atom.items for inner in item.atoms)
    return isinstance(atom, ClassAtom)


def _may_match(m: Machine, atom: Atom, wanted: Value) -> bool:
    return any(_matches(m, atom, kind) for kind in wanted.atoms)


def _matches(m: Machine, atom: Atom, kind: Atom) -> bool:
    if isinstance(kind, Tuple):
        return any(_may_match(m, atom, item) for item in kind.items)
    if not isinstance(atom, Instance) or not isinstance(kind, ClassAtom | Api):
        return True
    order = attributes.lineage(m, atom.cls) if isinstance(atom.cls, ClassAtom) else [atom.cls]
    if isinstance(kind, ClassAtom):
        return kind in order or atom.cls in ("", GENERIC)
    known = builtin_exception(kind.path)
    classes = [builtin_exception(base) for base in order]
    if known is None or all(c is None for c in classes) or atom.cls == GENERIC:
        return True
    return any(c is not None and issubclass(c, known) for c in classes)
