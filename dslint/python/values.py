"""What an expression may hold: a set of atoms, and how far it is the same on all ranks.

An *atom* is a constant, a value for each simulated rank, a library object by its path, a function, class, module or
object of the project, a tuple, or something unknown, whose kind says why. Values are immutable and compared by `==`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, slots=True)
class Written:
    """Where a program writes an item of a dictionary: its key (`key: value`, `d[key] = value`, `key=value`) and value.

    No value of the program: dictionaries keep it beside each item. `in_display` says that a display holds the pair.
    """

    key: ast.AST
    value: ast.AST
    in_display: bool = False


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
    | Written
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
    def is_truth(self) -> bool:
        """Return whether it is certainly true or false, on each rank."""
        found: list[object] = []
        for atom in self.atoms:
            if isinstance(atom, Unknown):
                found.append(atom.type == "builtins.bool" or atom)
            else:
                found += atom.values if isinstance(atom, PerRank) else (getattr(atom, "value", atom),)
        return bool(found) and all(isinstance(each, bool) for each in found)

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
