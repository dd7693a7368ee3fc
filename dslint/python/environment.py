"""Environment variables: which of them a launcher gives to each process, and what `os.environ` answers."""

from __future__ import annotations

import ast

from dslint.python.events import Event
from dslint.python.joins import join
from dslint.python.launches import exported
from dslint.python.machine import Machine
from dslint.python.operators import per_rank
from dslint.python.values import INPUT, Api, Const, Instance, Unknown, Value, one
from dslint.python.varies import HOST, NODE

ENVIRONMENT = "os.environ"
SET = "os.environ.__setitem__"
_SETS = frozenset(("sets-environment",))
# Present where that launcher started the process, else absent.
_OF_OTHERS = ("SLURM_", "OMPI_", "PMI_", "MV2_", "NODE_RANK")
# The columns of `Worlds.lanes` by the words of the rows.
WORLD = ("the number of ranks",)  # the number of its value where a launch states it
COLUMNS = {"rank": 0, "local-rank": 1, "node-rank": 2, "world-size": 3, "local-world-size": 4, "node-count": 5}
_OWN = {"host": HOST, "node": NODE}


def is_environment(atom: object) -> bool:
    """Return whether an atom is `os.environ`."""
    if isinstance(atom, Instance):
        return atom.cls == "os._Environ"
    return isinstance(atom, Api) and atom.path == ENVIRONMENT


def variable(m: Machine, name: Value, default: Value | None, node: ast.AST) -> Value:
    """Return the value of an environment variable, or of `default` where it may be absent."""
    found: Value | None = None
    for atom in name.atoms:
        text = atom.value if isinstance(atom, Const) and isinstance(atom.value, str) else None
        value = _variable(m, text, default, node)
        found = value if found is None else join(found, value)
    return found if found is not None else _input(m, "", node)


def _variable(m: Machine, name: str | None, default: Value | None, node: ast.AST) -> Value:
    if name is None:
        value = _input(m, "", node)
        return value if default is None else join(value, default)
    written = m.store.get((ENVIRONMENT, name))
    if written is not None:
        return written
    word = m.libraries.environment.get(name, "")
    column = COLUMNS.get(word)
    if column is not None:
        value = by_rank(m, column, text=True)
        if name.startswith(_OF_OTHERS):
            value = join(value, default) if default is not None else value
        return value
    told = exported(m, name)
    if told is not None:
        return told
    value = _input(m, name, node)
    return value if default is None else join(value, default)


def _input(m: Machine, name: str, node: ast.AST) -> Value:
    varies = _OWN.get(m.libraries.environment.get(name, ""), 0)
    reason = f"environment variable `{name}`" if name else "an environment variable"
    number = ("environment", name) if name else None
    atom = Unknown(INPUT, reason, "builtins.str")
    return Value(frozenset((atom,)), varies, 0, frozenset(), number)


def set_variable(m: Machine, name: Value, value: Value, node: ast.AST) -> None:
    """Do `os.environ[name] = value`."""
    single = name.single
    if isinstance(single, Const) and isinstance(single.value, str):
        given = {"name": name, "value": value}
        m.events.append(Event(SET, _SETS, node, m.frame.module, None, given, None, m.lanes, m.control))
        _keep_given(m, single.value)
        m.store.set((ENVIRONMENT, single.value), value)


def _keep_given(m: Machine, name: str) -> None:
    """Keep what the launcher gave: a write under a test (`if "RANK" not in os.environ`) may not come."""
    column = COLUMNS.get(m.libraries.environment.get(name, ""))
    if column is not None and not name.startswith(_OF_OTHERS) and m.store.peek((ENVIRONMENT, name)) is None:
        m.store.base[ENVIRONMENT, name] = by_rank(m, column, text=True)


def by_rank(m: Machine, column: int, *, text: bool = False) -> Value:
    """Return a column of the lanes: rank, local rank, machine, number of ranks, of local ranks, of machines."""
    values = tuple(str(lane[column]) if text else lane[column] for lane in m.worlds.lanes)
    atom = per_rank(values)
    if isinstance(atom, Const) and column == COLUMNS["world-size"]:
        return Value(frozenset((atom,)), m.worlds.varies(values, m.worlds.full), 0, frozenset(), WORLD)
    return one(atom, m.worlds.varies(values, m.worlds.full))
