"""Where ways meet: what a variable may hold then, and what it may hold from turn to turn of a loop."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.python.heap import RECEIVED
from dslint.python.places import earlier
from dslint.python.values import (
    LOST_VALUE,
    NOTHING,
    OPAQUE,
    UNKNOWN_LANE,
    Atom,
    Const,
    PerRank,
    Tuple,
    Unknown,
    Value,
)
from dslint.python.varies import RANKED, WORLD

# More atoms than this become unknown.
MAX_ATOMS = 8
# More objects than this are lost.
_MAX_OBJECTS = 12
# Tuples inside of tuples, as deep as this, are joined item by item.
_MAX_DEPTH = 3


def join(first: Value, second: Value, varies: int = 0) -> Value:
    """Return what may be either; `varies` are the causes for which ranks may take different ones."""
    if first is second:
        return first
    if first == second:
        found = first if earlier(first.origin, second.origin) is first.origin else second
        return found if not varies or is_same(first, second) else found.with_(varies, varies)
    if not first.atoms:
        return second
    if not second.atoms:
        return first
    atoms = first.atoms | second.atoms
    if len(atoms) > MAX_ATOMS:
        atoms = _fewer(atoms, first.varies | second.varies | varies)
    return Value(
        atoms,
        first.varies | second.varies | varies,
        first.shape | second.shape | varies,
        first.made_by | second.made_by,
        None,
        earlier(first.origin, second.origin),
    )


def is_definite(value: Value) -> bool:
    """Return whether all that look like it are the same: one known thing, or an unknown one with a number."""
    if value.number is not None or not value.atoms:
        return True
    return len(value.atoms) == 1 and not isinstance(value.single, Unknown)


def is_same(first: Value, second: Value) -> bool:
    """Return whether two values are certainly the same: two unknown numbers that look alike need not be."""
    if first is second:
        return True
    return first.atoms == second.atoms and first.number == second.number and is_definite(first)


def join_all(values: Iterable[Value]) -> Value:
    """Return what may be any of the values; nothing for none."""
    found = NOTHING
    for value in values:
        found = join(found, value)
    return found


def rank_or_constant(first: Value, second: Value) -> Value | None:
    """Return the rank of `get_rank() if is_initialized() else 0`: the constant is for a run of one process.

    The same for the number of ranks, and 1.
    """
    for value, other in ((first, second), (second, first)):
        atom, constant = value.single, other.single
        if not isinstance(atom, PerRank) or not isinstance(constant, Const) or isinstance(atom.values[0], bool):
            continue
        first_rank = (0,) if atom.values[0] in (0, UNKNOWN_LANE) else ()  # a run of one process is its rank 0
        alone = (*first_rank, -1, None) if value.varies & RANKED else (1,) if value.varies & WORLD else ()
        if constant.value in alone and not isinstance(constant.value, bool):
            return value
    return None


def _fewer(atoms: frozenset[Atom], varies: int) -> frozenset[Atom]:
    kinds = {atom.kind for atom in atoms if isinstance(atom, Const)}
    kept: list[Atom] = [atom for atom in atoms if not isinstance(atom, Const | Tuple)]
    if len(kept) >= _MAX_OBJECTS:
        return frozenset((Unknown(LOST_VALUE, "too many possible values"),))
    for kind in kinds:
        kept.append(Unknown(OPAQUE, "one of many constants", f"builtins.{kind.__name__}"))
    tuples = _tuples(atoms)
    if tuples:
        merged: list[Atom] = [*_by_position(tuples, varies)]
        lost: list[Atom] = [Unknown(LOST_VALUE, "one of many tuples", "builtins.tuple")]
        kept += merged or lost
    if len(kept) > _MAX_OBJECTS:
        return frozenset((Unknown(LOST_VALUE, "too many possible values"),))
    return frozenset(kept)


def _by_position(tuples: list[Tuple], varies: int) -> list[Tuple]:
    """Return for each form one tuple that holds at each place what any of them does; nothing for too many forms."""
    forms: dict[tuple[int, str, int], list[Tuple]] = {}
    for found in tuples:
        forms.setdefault((len(found.items), found.cls, _depth(found)), []).append(found)
    if len(forms) > _MAX_DEPTH or any(depth > _MAX_DEPTH for *_, depth in forms):
        return []
    return [
        Tuple(tuple(_column(column, varies) for column in zip(*(f.items for f in found), strict=True)), cls)
        for (_, cls, _), found in forms.items()
    ]


def _column(values: tuple[Value, ...], varies: int) -> Value:
    found = values[0]
    for value in values[1:]:
        found = widened(found, value)
    return found if all(is_same(values[0], value) for value in values[1:]) else found.with_(varies)


def _depth(atom: Atom) -> int:
    if not isinstance(atom, Tuple):
        return 0
    return 1 + max((_depth(inner) for item in atom.items for inner in item.atoms), default=0)


def widened(first: Value, second: Value) -> Value:
    """Return the join at the head of a loop: numbers and texts that change become unknown ones of their type."""
    if first == second:
        return first
    found = join(first, second)
    grown = second.atoms - first.atoms
    kinds = {
        type(next(iter(a.values))) if isinstance(a, PerRank) else a.kind
        for a in grown
        if isinstance(a, Const | PerRank)
    }
    moving = {kind for kind in kinds if kind in (int, float, str) and _has(first.atoms, kind)}
    if not moving and not any(isinstance(atom, Tuple) for atom in grown if _tuples(first.atoms)):
        return found
    atoms: set[Atom] = set()
    tuples = _tuples(found.atoms)
    merged = _by_position(tuples, found.varies) if len(tuples) > 3 else []
    for atom in found.atoms:
        kind = _kind(atom)
        if kind in moving or (isinstance(atom, Const) and atom.kind in moving):
            atoms.add(Unknown(OPAQUE, "changes from turn to turn", f"builtins.{_name(atom)}"))
        elif isinstance(atom, Tuple) and merged:
            atoms.update(merged)
        elif isinstance(atom, Tuple) and len(tuples) > 3:
            atoms.add(Unknown(LOST_VALUE, "a tuple that changes from turn to turn", "builtins.tuple"))
        else:
            atoms.add(atom)
    return Value(frozenset(atoms), found.varies, found.shape, found.made_by, None, found.origin)


def _kind(atom: Atom) -> type | None:
    if isinstance(atom, Const):
        return atom.kind
    if isinstance(atom, PerRank):
        known = [value for value in atom.values if value is not UNKNOWN_LANE]
        return type(known[0]) if known else None
    return None


def _name(atom: Atom) -> str:
    kind = _kind(atom)
    return kind.__name__ if kind else "object"


def _has(atoms: frozenset[Atom], kind: type) -> bool:
    return any(_kind(atom) is kind for atom in atoms)


def _tuples(atoms: frozenset[Atom]) -> list[Tuple]:
    return [atom for atom in atoms if isinstance(atom, Tuple)]


def is_told(first: Value, second: Value) -> bool:
    """Return whether one of two values was received from another rank."""
    return any(isinstance(a, Unknown) and a.reason == RECEIVED for a in (*first.atoms, *second.atoms))
