"""What an expression may hold: a set of atoms, and how far it is the same on all ranks.

An *atom* is a constant, a value for each simulated rank, a library object by its path, a function, class, module or
object of the project, a tuple, or something unknown, whose kind says why. Values are immutable and compared by `==`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.python.places import earlier

if TYPE_CHECKING:
    from dslint.python.source import Module

# Why something is unknown. An input comes from outside; what is opaque was made by code without a model; what is lost
# was given up by the reader itself.
INPUT, OPAQUE, LOST_VALUE = "input", "opaque", "lost"


class _Unknown:
    """The value of a lane that nobody knows."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN_LANE = _Unknown()


@dataclass(frozen=True, slots=True)
class Const:
    """A constant of Python: `None`, a number, a text, bytes. `kind` keeps `1`, `1.0` and `True` apart."""

    value: object
    kind: type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value))


@dataclass(frozen=True, slots=True)
class PerRank:
    """A constant for each lane of the worlds that are looked at."""

    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Api:
    """A module, function, class or value of a library, by its canonical dotted path."""

    path: str


@dataclass(frozen=True, slots=True)
class ModuleAtom:
    """A module of the project."""

    module: Module


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the project with the frames that it closes over; `owner` is the class whose body defines it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    frames: tuple[int, ...] = ()
    owner: ClassAtom | None = None

    @property
    def name(self) -> str:
        """Return the name; `<lambda>` for a lambda expression."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(frozen=True, slots=True, eq=False)
class ClassAtom:
    """A class of the project; its bases and attributes are in the store."""

    node: ast.ClassDef
    module: Module
    frame: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A method with its receiver. `function` is a function of the project or the path of a library method."""

    function: Function | str
    receiver: Atom


@dataclass(frozen=True, slots=True)
class Partial:
    """`functools.partial(function, *arguments, **keywords)`."""

    function: Value
    arguments: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a class: reading it calls the function."""

    function: Function


@dataclass(frozen=True, slots=True)
class Static:
    """A function that is not bound to the object through which it is read: `staticmethod`."""

    function: Function


@dataclass(frozen=True, slots=True)
class Super:
    """`super()` in a method of `owner`, for `receiver`."""

    owner: ClassAtom
    receiver: Instance | ClassAtom


@dataclass(frozen=True, slots=True)
class Tuple:
    """A sequence that never changes and whose length is known: a tuple, a `range`, a view of a dictionary."""

    items: tuple[Value, ...]
    cls: str = "builtins.tuple"

    @property
    def is_tuple(self) -> bool:
        """Return whether it is a tuple and nothing like one."""
        return self.cls == "builtins.tuple"


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object, by the place and the calls that made it. Its fields and its content are in the store.

    `cls` is a class of the project, the path of a library class (`builtins.list`, `torch.Tensor`), or empty where
    nobody knows the class. `loop` is the innermost loop that made it: outside of that loop it stands for many objects.
    Equal only to itself: `Machine.instance` gives the same object for the same place and calls.
    """

    node: ast.AST
    context: int
    cls: ClassAtom | str
    loop: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be read: `kind` and `reason` say why, `type` is the path of its class where that is known."""

    kind: str
    reason: str = ""
    type: str = ""


Atom = (
    Const
    | PerRank
    | Api
    | ModuleAtom
    | Function
    | ClassAtom
    | Bound
    | Partial
    | Property
    | Static
    | Super
    | Tuple
    | Instance
    | Unknown
)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The atoms that an expression may hold.

    `varies` are the causes for which ranks may hold different ones (`varies.py`); `shape` the causes for which the
    length or the shape may differ; `made_by` the wrapped models whose result it is derived from; `number` is the same
    for two expressions that certainly hold the same unknown value; `origin` is where the difference came from.
    """

    atoms: frozenset[Atom]
    varies: int = 0
    shape: int = 0
    made_by: frozenset[Instance] = frozenset()
    number: object = None
    origin: tuple[Module, ast.AST] | None = None

    def __eq__(self, other: object) -> bool:
        """Compare all but `number` and `origin`."""
        if self is other:
            return True
        return (
            isinstance(other, Value)
            and self.varies == other.varies
            and self.shape == other.shape
            and self.atoms == other.atoms
            and self.made_by == other.made_by
        )

    def __hash__(self) -> int:
        return hash((self.atoms, self.varies, self.shape))

    @property
    def single(self) -> Atom | None:
        """Return the only atom; `None` when there are several."""
        return next(iter(self.atoms)) if len(self.atoms) == 1 else None

    @property
    def constants(self) -> tuple[object, ...] | None:
        """Return the constants that it may hold; `None` when it may hold anything else."""
        found = []
        for atom in self.atoms:
            if not isinstance(atom, Const):
                return None
            found.append(atom.value)
        return tuple(found)

    @property
    def is_lost(self) -> bool:
        """Return whether the reader gave the value up."""
        return any(isinstance(atom, Unknown) and atom.kind == LOST_VALUE for atom in self.atoms)

    def with_(
        self,
        varies: int,
        shape: int = 0,
        made_by: frozenset[Instance] = frozenset(),
        origin: tuple[Module, ast.AST] | None = None,
    ) -> Value:
        """Return the same value with more causes of difference."""
        if varies | self.varies == self.varies and shape | self.shape == self.shape and made_by <= self.made_by:
            return self
        joined = self.made_by | made_by
        return Value(self.atoms, self.varies | varies, self.shape | shape, joined, self.number, self.origin or origin)


# More atoms than this become unknown.
MAX_ATOMS = 8
# More objects than this are lost.
_MAX_OBJECTS = 12
# Tuples inside of tuples, as deep as this, are joined item by item.
_MAX_DEPTH = 3


def const(value: object) -> Value:
    """Return the value of a constant."""
    kind = type(value)
    if kind not in _PLAIN_KINDS:
        return Value(frozenset((Const(value),)))
    found = _CONSTANTS.get((kind, value))
    if found is None:
        if len(_CONSTANTS) > 20_000:
            _CONSTANTS.clear()
        found = _CONSTANTS[kind, value] = Value(frozenset((Const(value),)))
    return found


_PLAIN_KINDS = (int, str, bool, type(None))
_CONSTANTS: dict[tuple[type, object], Value] = {}


def one(atom: Atom, varies: int = 0, shape: int = 0, made_by: frozenset[Instance] = frozenset()) -> Value:
    """Return a value with one atom."""
    return Value(frozenset((atom,)), varies, shape, made_by)


def unknown(kind: str, reason: str, varies: int = 0, shape: int = 0, type_: str = "") -> Value:
    """Return an unknown value with its reason."""
    return Value(frozenset((Unknown(kind, reason, type_),)), varies, shape)


NONE = const(None)
TRUE = const(True)
FALSE = const(False)
NOTHING = Value(frozenset())


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
