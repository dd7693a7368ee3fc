"""The engine's answers as the judge asks for them: what it believed of an expression, kept as it was at that moment."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dslint.python.entries import Analysis
from dslint.python.events import Event, Seq, events
from dslint.python.files import Texts
from dslint.python.heap import ITEMS, REST
from dslint.python.lanes import Worlds
from dslint.python.libraries import READS, Libraries, libraries
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.values import (
    INPUT,
    LOST_VALUE,
    OPAQUE,
    UNKNOWN_LANE,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Const,
    Function,
    Instance,
    ModuleAtom,
    Partial,
    PerRank,
    Tuple,
    Unknown,
    Value,
)
from dslint.python.varies import DIVERGENT, LOST

from .engine import Site, is_same_call
from .ranks import EventId
from .standins import engines, torches
from .standins.mocks import Mock
from .worlds import Job

# Tags of rows whose calls are events for some arguments only.
_QUIET = frozenset((READS,))
# How deep the contents of containers are kept and compared.
DEPTH = 3


class Kept:
    """What one atom was when it was recorded."""

    anything = False

    def holds(self, value: Any, lane: int) -> bool:
        """Whether a value may be this."""
        return True


@dataclass(frozen=True)
class Anything(Kept):
    """An unknown value; of a class where `type` says one."""

    type: str = ""

    @property
    def anything(self) -> bool:  # type: ignore[override]
        return not self.type

    def holds(self, value: Any, lane: int) -> bool:
        return not self.type or is_of_class(value, self.type)


@dataclass(frozen=True)
class Plain(Kept):
    """A constant."""

    value: object

    def holds(self, value: Any, lane: int) -> bool:
        return is_equal(value, self.value)


@dataclass(frozen=True)
class Lanes(Kept):
    """A constant for each lane."""

    values: tuple[object, ...]

    def holds(self, value: Any, lane: int) -> bool:
        return self.values[lane] is UNKNOWN_LANE or is_equal(value, self.values[lane])


@dataclass(frozen=True)
class Named(Kept):
    """A function, class, module or method, by a test of its own."""

    atom: Atom

    def holds(self, value: Any, lane: int) -> bool:
        return is_named(value, self.atom)


@dataclass(frozen=True)
class Items(Kept):
    """A sequence: item by item, or (`each`) what every item may be."""

    cls: str
    items: tuple[frozenset[Kept], ...] | None
    each: frozenset[Kept] | None = None

    def holds(self, value: Any, lane: int) -> bool:
        if not is_of_class(value, self.cls):
            return False
        if not isinstance(value, list | tuple | range | set | frozenset):
            return True
        held = list(set.__iter__(value) if isinstance(value, set) else value)
        if self.items is not None:
            return len(held) == len(self.items) and all(
                any(k.holds(v, lane) for k in kept) for v, kept in zip(held, self.items, strict=True)
            )
        return self.each is None or all(any(k.holds(v, lane) for k in self.each) for v in held)


@dataclass(frozen=True)
class Mapped(Kept):
    """A dictionary: what it holds under keys that are known, and elsewhere."""

    keys: tuple[tuple[object, frozenset[Kept], bool], ...]
    rest: frozenset[Kept]

    def holds(self, value: Any, lane: int) -> bool:
        if not isinstance(value, dict):
            return False
        known = {(type(k), k): kept for k, kept, _ in self.keys}
        for key, item in value.items():
            try:
                kept = known.get((type(key), key), frozenset()) | self.rest
            except TypeError:
                kept = self.rest
            if not any(k.holds(item, lane) for k in kept):
                return False
        return all(key in value for key, _, is_sure in self.keys if is_sure)


def is_equal(value: Any, wanted: object) -> bool:
    """Whether a value is a constant: type and value, with all that is not a number alike."""
    if type(value) is not type(wanted):
        return False
    return bool(value == wanted) or (value != value and wanted != wanted)


_MEANS: dict[str, tuple[type, ...]] = {
    "builtins.float": (float, int),  # any number
    "builtins.int": (int,),
    "builtins.set": (set, frozenset),
    "builtins.slice": (slice,),
    "builtins.Exception": (BaseException,),
    "builtins.sequence": (object,),
    "builtins.range": (range,),
    "builtins.dict": (dict,),
    "builtins.str": (str,),
    "builtins.bool": (bool,),
    "builtins.bytes": (bytes,),
    "builtins.list": (list,),
    "builtins.tuple": (tuple,),
    "builtins.generator": (types.GeneratorType, contextlib._GeneratorContextManager),
}


def is_of_class(value: Any, path: str) -> bool:
    """Whether a value is of a class, by its path; what no stand-in models passes."""
    if path in _MEANS:
        return isinstance(value, _MEANS[path])
    if path.startswith(("builtins.", "collections.", "dataclasses.")):
        return path in ("builtins.iterator", "builtins.context") or _has_base(value, path)
    if isinstance(value, Mock) or path == "torch.Tensor":
        return isinstance(value, Mock) or type(value).__name__ in ("Tensor", "Parameter", "Size")
    return not isinstance(value, int | str | float | list | dict | tuple | type(None))


def _has_base(value: Any, path: str) -> bool:
    return any(f"{cls.__module__}.{cls.__qualname__}" == path for cls in type(value).__mro__)


def is_named(value: Any, atom: Atom) -> bool:
    """Whether a value is the function, class or module that an atom stands for."""
    if isinstance(atom, Function):
        code = getattr(value, "__code__", None)
        if hasattr(value, "__wrapped__"):
            return is_named(value.__wrapped__, atom) or _is_code(code, atom)
        return _is_code(code, atom)
    if isinstance(atom, Bound):
        if isinstance(atom.function, Function):
            return is_named(getattr(value, "__func__", value), atom.function) or isinstance(value, Mock)
        return callable(value)
    if isinstance(atom, ClassAtom):
        return isinstance(value, type) and value.__name__ == atom.node.name
    if isinstance(atom, ModuleAtom):
        return isinstance(value, types.ModuleType)
    if isinstance(atom, Partial):
        return isinstance(value, functools.partial | functools.partialmethod)
    if isinstance(atom, Api) and atom.path.startswith("builtins.") and atom.path.count(".") == 1:
        return getattr(value, "__name__", None) in (
            atom.path.removeprefix("builtins."),
            "RankSet",
            "load",
            "_leave",
            "rank_hash",
        )
    return True


def _is_code(code: Any, atom: Function) -> bool:
    return code is not None and code.co_name == atom.name and _is_at(code.co_firstlineno, atom.node)


def _is_at(line: int, node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return line in {getattr(node, "lineno", line), *(d.lineno for d in decorators)}


def kept_value(m: Machine, value: Value, depth: int = DEPTH) -> frozenset[Kept]:
    """What a value may be now."""
    return frozenset(_kept(m, atom, depth) for atom in value.atoms)


def _kept(m: Machine, atom: Atom, depth: int) -> Kept:
    if isinstance(atom, Const):
        return Plain(atom.value) if atom.value == atom.value else Anything("builtins.float")
    if isinstance(atom, PerRank):
        return Lanes(atom.values)
    if isinstance(atom, Unknown):
        return Anything(atom.type)
    if isinstance(atom, Tuple):
        if not depth:
            return Items(atom.cls, None)
        return Items(atom.cls, tuple(kept_value(m, item, depth - 1) for item in atom.items))
    if isinstance(atom, Instance):
        return _kept_object(m, atom, depth)
    return Named(atom)


def _kept_object(m: Machine, atom: Instance, depth: int) -> Kept:
    if isinstance(atom.cls, ClassAtom):
        return OfProject(atom.cls)
    if atom.cls in ("builtins.list", "collections.deque", "builtins.set", "builtins.tuple", "builtins.frozenset"):
        return _kept_items(m, atom, depth)
    if atom.cls == "builtins.dict":
        return _kept_mapping(m, atom, depth)
    return Anything(atom.cls)


@dataclass(frozen=True)
class OfProject(Kept):
    """An object of a class of the program."""

    cls: ClassAtom

    def holds(self, value: Any, lane: int) -> bool:
        return any(cls.__name__ == self.cls.node.name for cls in type(value).__mro__)


def _kept_items(m: Machine, atom: Instance, depth: int) -> Kept:
    assert isinstance(atom.cls, str)
    items, rest = m.store.peek((atom, ITEMS)), m.store.peek((atom, REST))
    if not depth or (m.content(atom) is not None):
        return Items(atom.cls, None)
    exact = items.single if items is not None else None
    if isinstance(exact, Tuple) and (rest is None or not rest.atoms):
        return Items(atom.cls, tuple(kept_value(m, item, depth - 1) for item in exact.items))
    each: frozenset[Kept] = frozenset()
    for item in m.elements(atom):
        each |= kept_value(m, item, depth - 1)
    return Items(atom.cls, None, each)


def _kept_mapping(m: Machine, atom: Instance, depth: int) -> Kept:
    from dslint.python.dictionaries import known_keys

    if not depth or m.content(atom) is not None:
        return Anything("builtins.dict")
    keys = []
    for key in known_keys(m, atom):
        stored = m.store.peek((atom, ("key", key)))
        if stored is not None and stored.atoms:
            keys.append((key, kept_value(m, stored, depth - 1), False))
    rest = m.store.peek((atom, REST))
    return Mapped(tuple(keys), kept_value(m, rest, depth - 1) if rest is not None else frozenset())


def told_kept(kept: Kept) -> str:
    """What was kept, in short."""
    if isinstance(kept, Plain):
        return repr(kept.value)
    if isinstance(kept, Anything):
        return kept.type or "?"
    if isinstance(kept, Items):
        name = kept.cls.removeprefix("builtins.")
        if kept.items is not None:
            return f"{name}[{', '.join('|'.join(map(told_kept, i)) or 'none' for i in kept.items)}]"
        return name + ("" if kept.each is None else f"(of {'|'.join(map(told_kept, kept.each)) or 'none'})")
    return str(kept)


@dataclass
class Said:
    """All that was believed of one expression: what it may be on which lanes."""

    lanes: int = 0
    choices: dict[Kept, int] = field(default_factory=dict)
    varies: int = 0
    lost: bool = False
    unasked: bool = False
    open: bool = False
    world_lane: int | None = None
    texts: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        # Of open parameters it is assumed, not claimed.
        return not self.open and not self.varies & (DIVERGENT | LOST)

    @property
    def vague(self) -> bool:
        """Whether it says nothing about the value itself."""
        return any(kept.anything for kept in self.choices)

    def may_be(self, value: object, rank: int, world: int) -> bool:
        lane = self.world_lane
        assert lane is not None
        lane += rank
        return any(lanes >> lane & 1 and kept.holds(value, lane) for kept, lanes in self.choices.items())

    def __str__(self) -> str:
        shown = " | ".join(
            told_kept(kept) + ("" if lanes == self.lanes else f" on {lanes:b}") for kept, lanes in self.choices.items()
        )
        return shown[:400] or "nothing"


@functools.cache
def is_recorded(path: str) -> bool:
    """Whether a stand-in notes the calls of an API: what it has without noting them is no event of a run."""
    words = path.split(".")
    if words[-1] == "forward":  # noted where the object is called
        return True
    for cut in range(len(words) - 1, 0, -1):
        name = ".".join(words[:cut])
        found: Any = torches.modules(name) or engines.modules(name)
        if found is None:
            continue
        for word in words[cut:]:
            found = inspect.getattr_static(found, word, None)
            if isinstance(found, classmethod | staticmethod):
                found = found.__func__
            if found is None:
                break
        else:
            return isinstance(found, Mock) or hasattr(found, "__judge_api__")
    return True


@dataclass
class EngineBelief:
    """What `dslint.python` says of one program."""

    tree: Seq
    values: dict[Site, Said]
    first_lane: int
    rows: Libraries
    unknowns: dict[str, int] = field(default_factory=dict)
    gave_up: bool = False

    @functools.cached_property
    def places(self) -> set[tuple[int, int, str]]:
        """Where the tree has events that runs record, with the last word of their path."""
        found = (event for event in events(self.tree) if self.counts(event))
        return {(e.node.lineno, e.node.col_offset, e.api.rpartition(".")[2]) for e in found}  # type: ignore[attr-defined]

    def value(self, site: Site) -> Said | None:
        found = self.values.get(site)
        # Where a budget ended a call, what was not looked at is lost, not thought dead; what was may come again.
        return Said(lost=True, world_lane=self.first_lane) if self.gave_up else found

    def counts(self, event: Event) -> bool:
        top = event.api.partition(".")[0]
        # An event without a path is no call of a library: what Python may refuse on one of several ways.
        if not event.api or not is_recorded(event.api):
            return False
        return isinstance(event.node, ast.Call) and top not in sys.stdlib_module_names and top != "builtins"

    def in_alphabet(self, event: EventId) -> bool:
        if "()" in event.api:  # of an object that no stand-in models: an event where the tree has one
            return (event.line, event.col, event.api.rpartition(".")[2]) in self.places
        path = self.rows.canonical(event.api)
        if path == "torch.nn.Module.forward":  # the forward of a class of the program is a function of the program
            return False
        row = self.rows.function(path)
        if row is not None and row.tags and all(tag.startswith("makes-leaf-if ") for tag in row.tags):
            # An event where the new tensor gets a gradient.
            return (event.line, event.col, event.api.rpartition(".")[2]) in self.places
        if row is not None:
            return bool(row.tags - _QUIET)
        cls = self.rows.class_(path)
        if cls is not None:
            return bool(cls.constructor.tags - _QUIET)
        owner, _, name = path.rpartition(".")
        method = self.rows.method(owner, name)
        return method is not None and bool(method.tags - _QUIET)

    def is_same_event(self, event: Event, done: EventId) -> bool:
        return is_same_call(event, done)

    def lane(self, rank: int, job: Job) -> int | None:
        return self.first_lane + rank


class _OnlyTheScript(Analysis):
    """What nothing reaches is not run with open parameters."""

    def open(
        self, module: Module, *, everything: bool = False, wanted: Callable[[ast.AST], bool] | None = None
    ) -> None:
        return


class _WithTheRest(Analysis):
    """What nothing reaches is run with open parameters, and says nothing of what the script has reached."""

    def open(
        self, module: Module, *, everything: bool = False, wanted: Callable[[ast.AST], bool] | None = None
    ) -> None:
        recorder = self.machine.recorder
        assert isinstance(recorder, _Recorder)
        recorder.known = set(recorder.belief.values)
        for found in list(self.program.shared.parsed.values()):
            if found is not None:
                super().open(found)


def worlds_of(job: Job) -> tuple[Worlds, int]:
    """The worlds that the engine looks at, and the lane of rank 0 of this job."""
    shape = (job.nodes, job.size // job.nodes)
    worlds = Worlds()
    if shape not in worlds.shapes or job.seed % 4 == 3:
        worlds = Worlds((shape,), stated=True)
    return worlds, worlds.groups[worlds.shapes.index(shape)][0]


def believed(files: Mapping[str, str], job: Job) -> EngineBelief:
    """Ask the engine: once for the tree, as rules do, and once for the value of every expression."""
    worlds, lane = worlds_of(job)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 5_000))
    try:
        plain = _OnlyTheScript(Texts(files), worlds, libraries())
        entry = plain.script(job.entry)
        noted = _WithTheRest(Texts(files), worlds, libraries())
        # Also functions that rules have no interest in: the judge asks for every expression.
        noted.program.relevance(noted.machine).of = lambda node, module: True  # type: ignore[method-assign]
        belief = EngineBelief(entry.tree if entry else Seq(), {}, lane, libraries())
        noted.machine.recorder = _Recorder(noted.machine, belief)
        noted.script(job.entry)
        belief.gave_up = any(reason.startswith("budget") for reason in noted.machine.lost)
    finally:
        sys.setrecursionlimit(before)
    return belief


class _Recorder:
    def __init__(self, machine: Machine, belief: EngineBelief) -> None:
        self.machine, self.belief = machine, belief
        self.known: set[Site] = set()  # what a later entry has no say in
        self._methods: dict[Module, dict[int, list[ast.expr]]] = {}

    def methods(self, module: Module) -> dict[int, list[ast.expr]]:
        """`x.f` by the number of `x`, where `x.f(...)` is called: the engine calls without reading it."""
        if module not in self._methods:
            calls = [n for n in ast.walk(module.tree) if isinstance(n, ast.Call)]
            found: dict[int, list[ast.expr]] = {}
            for node in calls:
                if isinstance(node.func, ast.Attribute):
                    found.setdefault(id(node.func.value), []).append(node.func)
                elif isinstance(node.func, ast.Name) and node.func.id == "super":
                    found.setdefault(id(node), []).append(node.func)
            self._methods[module] = found
        return self._methods[module]

    def _said(self, module: Module, node: ast.AST) -> Said:
        site = (module.path, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        found = self.belief.values.get(site)
        if found is None:
            found = self.belief.values[site] = Said(world_lane=self.belief.first_lane)
        return found

    def __call__(self, module: Module, node: ast.AST, value: Value) -> None:
        m = self.machine
        for method in self.methods(module).get(id(node), ()):
            self._said(module, method).lost = self._said(module, method).unasked = True
        found = self._said(module, node)
        if (module.path, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) in self.known:  # type: ignore[attr-defined]
            return
        found.open = found.open or bool(self.known)
        found.lanes |= m.lanes
        bits = m.varies(value)
        found.varies |= bits
        found.lost = found.lost or value.is_lost or bool(bits & LOST)
        for atom in value.atoms:
            if isinstance(atom, Unknown) and not atom.type:
                self.belief.unknowns[atom.reason] = self.belief.unknowns.get(atom.reason, 0) + 1
        for kept in kept_value(m, value):
            found.choices[kept] = found.choices.get(kept, 0) | m.lanes


__all__ = ["INPUT", "LOST_VALUE", "OPAQUE", "EngineBelief", "believed"]
