"""The objects and frames of an interpretation: what each holds, and how far that is the same on all ranks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.core.stopping import stop_check
from dslint.python.events import Loop, Lost, Node
from dslint.python.lanes import Worlds
from dslint.python.places import earlier
from dslint.python.scopes import Scope
from dslint.python.shared import Interned, Shared
from dslint.python.store import Key, Store
from dslint.python.values import (
    LOST_VALUE,
    OPAQUE,
    ClassAtom,
    Function,
    Instance,
    Tuple,
    Unknown,
    Value,
    one,
    unknown,
)
from dslint.python.varies import LOST

if TYPE_CHECKING:
    from dslint.python.bindings import Partly
    from dslint.python.generators import Waiting
    from dslint.python.launches import Launch
    from dslint.python.libraries import Libraries
    from dslint.python.program import Program
    from dslint.python.source import Module
    from dslint.python.summaries import Summary


# Fields of objects that are no attributes of the program.
CONTENT, ITEMS, REST, LENGTH, BASES, ESCAPED = "#content", "#items", "#rest", "#length", "#bases", "#escaped"
# What an object of unknown class holds under names that nobody has written to.
UNWRITTEN = "#unwritten"
# How many numbers a range gives that is too long to be written out.
COUNT = "#count"
# Why the shape of a tensor follows from the data of each rank (`ragged.py`).
RAGGED = "#ragged"
# Whether a layer has run, so that its parameters have gradients (`gradients.py`).
RAN = "#ran"
CONTAINERS = frozenset({"builtins.list", "builtins.dict", "builtins.set", "builtins.tuple", "collections.deque"})


# The reason of a value that a collective has made the same on all ranks.
RECEIVED = "received from the group"
# A parameter or buffer that a module has registered: what wraps the module makes it equal on all ranks.
REGISTERED = "registered"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a value is where a test has decided: `first` where it holds, else `second`."""

    node: ast.AST
    test: Value
    module: Module
    first: Value
    second: Value


@dataclass(slots=True)
class Outcome:
    """A way to leave a block: what it wrote, on which lanes, and for which causes other ranks may leave otherwise."""

    changes: dict[Key, Value]
    lanes: int
    control: int
    value: Value | None = None
    node: ast.AST | None = None


@dataclass(slots=True)
class LoopState:
    """The loop that `break` and `continue` belong to."""

    mark: int
    number: int
    tree: Loop | None = None
    breaks: list[Outcome] = field(default_factory=list)
    continues: list[Outcome] = field(default_factory=list)


@dataclass(slots=True)
class Frame:
    """One activation of a function, or the body of a module or class."""

    id: int
    module: Module
    module_frame: int
    parent: Frame | None = None
    function: Function | None = None
    scope: Scope | None = None
    enclosing: tuple[int, ...] = ()
    mark: int = 0
    returns: list[Outcome] = field(default_factory=list)
    loops: list[LoopState] = field(default_factory=list)
    owner: ClassAtom | None = None
    receiver: Value | None = None
    yields: Value | None = None
    yielded_by: int = 0  # the causes for which ranks may reach the `yield` statements a different number of times
    on_yield: Callable[[Value], None] | None = None
    call: ast.AST | None = None
    class_body: ClassAtom | None = None
    is_comprehension: bool = False
    goes_on: bool = False  # beyond its budget, which its calls have taken (`budgets.py`)
    turn: int = 0  # of a loop whose turns run one by one: each makes objects of its own

    @property
    def depth(self) -> int:
        """Return the number of frames below this one."""
        found, frame = 0, self.parent
        while frame is not None:
            found, frame = found + 1, frame.parent
        return found


# Why a block has no end: a call around it took too many steps (`budgets.py`).
UNFINISHED = "budget of a call"


class OutOfBudgetError(Exception):
    """A call has taken more steps than it may (`budgets.py`)."""


class Heap:
    """The store with all objects in it, and the point at which the interpretation is."""

    max_depth = 12

    def __init__(
        self, program: Program, libraries: Libraries, worlds: Worlds | None = None, shared: Shared | None = None
    ) -> None:
        self.program = program
        self.libraries = libraries
        self.worlds = worlds or Worlds()
        self.store = Store()
        # Objects by place: those of modules outlive the script, and those that the script makes do not.
        self.shared = shared or Shared()
        self.own = Interned() if shared is not None else self.shared.interned
        self.new = self.own
        # The classes in which Python looks for an attribute, while the bases stay what they are.
        self.orders: dict[ClassAtom, tuple[list[ClassAtom | str], list[tuple[ClassAtom, Value | None]]]] = {}
        self.summaries: dict[object, list[Summary]] = {}
        self.lanes = self.worlds.full
        self.control = 0
        self.path: dict[object, bool] = {}
        self.alive = True
        self.check_stop = stop_check()
        self.events: list[Node] = []
        self.frame: Frame = None  # type: ignore[assignment]  # there is one whenever code runs
        self.steps = 0
        self.limit = 60_000  # the steps at which the call that runs has taken too many (`budgets.py`)
        self.partial: list[Node] = []  # what a call that was given up has done
        self.class_bases: dict[ClassAtom, Value] = {}  # also when the store has forgotten the class
        self.forwarding: frozenset[Instance] = frozenset()  # the wrapped models whose forward runs
        self.renewed: dict[Instance, Instance] = {}  # what calls that were not interpreted again gave, by their first
        self.defaults: dict[object, Value] = {}  # of options and open parameters, by the number of their value
        self.chosen: dict[object, Choice] = {}  # what a test has chosen, by the number of the value
        self.computed: dict[object, object] = {}  # what an unknown object is computed from, by the number of its value
        self.placed: dict[object, ast.expr] = {}  # tests that have no other number than their place
        self.converted: dict[object, str] = {}  # the type of an option that is given, by the number of its value
        self.escaped: set[Instance] = set()  # what code without a model has got hold of, at any time
        self.turn = 0
        self.yielded_by = 0  # why ranks may get a different number of items from the generator that ran last
        self.ended_by = 0  # why ranks may come to the end of what `next` takes from in another turn ...
        self.ended_in: ast.AST | None = None  # ... and that `next`
        self.raised_by = 0  # why some ranks leave the block that ran last by an exception and others do not
        self.asked_varies = 0  # of what `__bool__` answered in the test that is being decided
        self.decided: dict[object, bool] = {}  # tests that were decided by a test before them, for summaries
        self.recorder: Callable[[Module, ast.AST, Value], None] | None = None
        self.lost: dict[str, int] = {}
        self.reached: set[int] = set()
        self.taken: dict[int, int] = {}  # the sides of each `if` that some lane takes: 1 the first, 2 the other
        self.keeps_configs = False  # exact about what dictionaries hold, and who reads them (`configdicts.py`)
        self.launch: Launch | None = None  # the command that starts the script, where one is interpreted
        self.generators: dict[Instance, Waiting] = {}  # made and not run yet (`generators.py`)
        self.copies: set[Instance] = set()  # made like another object by a library
        self.parts: dict[Instance, Instance] = {}  # of which unknown object something is an item
        self.restarts: set[ast.AST] = set()  # what made the loaders that generators begin anew, as often as they end
        self.collates = False  # a function puts a batch together, of as many samples on each rank
        self.devices: dict[Instance, Value] = {}  # the devices that calls name which make tensors
        self.hosted: dict[Instance, tuple[Module, ast.AST] | None] = {}  # what lies on the host (`memory.py`)
        # The `try` statements around, innermost last: a mark, and the ways into their handlers.
        self.tries: list[tuple[int, list[Outcome]]] = []
        self.split: tuple[Module, ast.AST] | None = None  # the test whose ways meet just now
        self.asked: tuple[ast.AST | None, Value | None] | None = None
        self.partly: dict[int, Partly] = {}  # values of names that only some ranks have bound (`bindings.py`)

    def chosen_from(self, first: Value, second: Value) -> object:
        """Return a new number of a value that is one of two, and keep which test decides, where one does."""
        found = ("met", self.number())
        node, test = self.asked if self.asked is not None else (None, None)
        if node is not None and test is not None:
            self.chosen[found] = Choice(node, test, self.frame.module, first, second)
        return found

    # -- objects and their content ------------------------------------------------------------------------------

    def context(self, key: object) -> int:
        """Return the number of a context: the same for the same key."""
        found = self.shared.interned.contexts.get(key) or self.own.contexts.get(key)
        if found is None:
            found = self.new.contexts[key] = self.number()
        return found

    def fields(self) -> dict[int, tuple[Instance, str]]:
        """Return of which object each field is that was read before anything set it, and its name, by its context."""
        return {
            number: (key[0], str(key[1]))
            for contexts in (self.shared.interned.contexts, self.own.contexts, self.new.contexts)
            for key, number in contexts.items()
            if isinstance(key, tuple) and len(key) > 1 and isinstance(key[0], Instance)
        }

    def number(self) -> int:
        """Return a number that nothing else has."""
        return next(self.shared.numbers)

    def instance(self, node: ast.AST, context: int, cls: ClassAtom | str, loop: int = 0) -> Instance:
        """Return the object made at a place in a context: the same one each time."""
        key = (id(node), context, cls, loop)
        found = self.shared.interned.instances.get(key) or self.own.instances.get(key)
        if found is None:
            found = self.new.instances[key] = Instance(node, context, cls, loop)
        return found

    def definition(self, key: object) -> Function | ClassAtom | None:
        """Return the function or class that a definition has made before."""
        return self.shared.interned.definitions.get(key) or self.own.definitions.get(key)

    def made(self, node: ast.AST, cls: ClassAtom | str, content: Value | None = None) -> Value:
        """Return a new object made at `node`."""
        loops = self.frame.loops
        atom = self.instance(node, self.frame.turn or self.frame.id, cls, loops[-1].number if loops else 0)
        if content is not None:
            self.store.set((atom, CONTENT), content)
        return Value(frozenset((atom,)), 0, 0, frozenset(), (id(node), self.frame.id, self.turn))

    def thing(self, node: ast.AST, reason: str, operands: Iterable[Value] = (), cls: str = "", varies: int = 0,
              shape: int = 0, kind: str = OPAQUE) -> Value:  # fmt: skip
        """Return a new object with unknown content, which differs between ranks as its operands do."""
        made_by: frozenset[Instance] = frozenset()
        origin = None
        for operand in operands:
            varies |= self.varies(operand)
            shape |= self.shape(operand)
            made_by |= self.made_by(operand)
            origin = origin or self.origin(operand)
        content = Value(frozenset((Unknown(kind, reason, cls),)), varies, shape, made_by, None, origin)
        return self.made(node, cls, content)

    def content(self, atom: Instance) -> Value | None:
        """Return what an object holds as a whole: the numbers of a tensor, the text of an unknown string."""
        return self.store.get((atom, CONTENT))

    def varies(self, value: Value) -> int:
        """Return the causes for which ranks may hold different values, contents included."""
        from dslint.python.enums import held_by

        found, level, seen = 0, [value], set[int]()
        deepest = 1 if self.keeps_configs else 3
        for depth in range(deepest + 1):
            inner: list[Value] = []
            for held in level:
                found |= held.varies
                for atom in held.atoms:
                    if isinstance(atom, Instance):
                        content = self.store.get((atom, CONTENT))
                        if content is not None:
                            found |= content.varies
                    elif isinstance(atom, Unknown) and atom.kind == LOST_VALUE:
                        found |= LOST
                    if depth < deepest and isinstance(atom, Instance | Tuple) and id(atom) not in seen:
                        seen.add(id(atom))  # what is large holds much more than once
                        inner += held_by(self, atom)
            level = inner
        return found

    def dictionary_of(self, value: Value) -> Value:
        """Return the `__dict__` of an object."""
        from dslint.python.launches import taken_apart

        taken_apart(self, value)
        return unknown(OPAQUE, "`__dict__`", self.deep_varies(value))

    def deep_varies(self, value: Value, depth: int = 0) -> int:
        """Return the causes of difference of a value with the fields of the objects that it leads to."""
        found = self.varies(value)
        if depth > 2:
            return found
        for atom in value.atoms:
            if isinstance(atom, Instance):
                if isinstance(atom.cls, ClassAtom) or atom.cls not in CONTAINERS:
                    for name in tuple(self.store.names.get(atom, ())):
                        if isinstance(name, str):
                            stored = self.store.get((atom, name))
                            found |= self.deep_varies(stored, depth + 1) if stored is not None else 0
                elif atom.cls in CONTAINERS:
                    for item in self.elements(atom):
                        found |= self.deep_varies(item, depth + 1)
            elif isinstance(atom, Tuple):
                for item in atom.items:
                    found |= self.deep_varies(item, depth + 1)
        return found

    def shape(self, value: Value) -> int:
        """Return the causes for which the length or shape may differ."""
        found = value.shape
        for atom in value.atoms:
            if isinstance(atom, Instance):
                if atom.cls == "builtins.set":  # equal items are one
                    rest = self.store.get((atom, REST))
                    found |= self.varies(rest) if rest is not None else 0
                for name in (CONTENT, LENGTH, ITEMS):
                    content = self.store.get((atom, name))
                    if content is not None:
                        found |= content.shape if name == CONTENT else content.varies | content.shape
            elif isinstance(atom, Unknown) and atom.kind == LOST_VALUE:
                found |= LOST
        return found

    def made_by(self, value: Value) -> frozenset[Instance]:
        """Return the wrapped models that took part in making a value."""
        found = self._made_by(value)
        for atom in value.atoms:
            if isinstance(atom, Instance):
                if atom.cls in CONTAINERS:
                    for item in self.elements(atom):
                        found |= self._made_by(item)
            elif isinstance(atom, Tuple):
                for item in atom.items:
                    found |= self.made_by(item)
        return found

    def _made_by(self, value: Value) -> frozenset[Instance]:
        """Return the wrapped models that took part in making a value and its content, without what it holds."""
        found = value.made_by
        for atom in value.atoms:
            content = self.store.get((atom, CONTENT)) if isinstance(atom, Instance) else None
            if content is not None and content.made_by:
                found |= content.made_by
        return found

    def origin(self, value: Value) -> tuple[Module, ast.AST] | None:
        """Return where the difference between the ranks comes from."""
        if value.origin is not None:
            return value.origin
        found = None
        for atom in value.atoms:
            for name in (CONTENT, LENGTH) if isinstance(atom, Instance) else ():
                cell = self.store.get((atom, name))
                found = earlier(found, cell.origin) if cell is not None else found
        return found

    def with_origin(self, value: Value) -> Value:
        """Return a value with the place that its content or its length comes from, which its events outlive."""
        place = self.origin(value) if value.origin is None else None
        if place is None:
            return value
        return Value(value.atoms, value.varies, value.shape, value.made_by, value.number, place)

    def elements(self, atom: Instance) -> list[Value]:
        """Return the values that a list, dict or set may hold."""
        items, rest = self.store.get((atom, ITEMS)), self.store.get((atom, REST))
        exact = [choice for choice in items.atoms if isinstance(choice, Tuple)] if items is not None else []
        found = [item.with_(items.varies) for choice in exact for item in choice.items] if items is not None else []
        found += [rest] if rest is not None else []
        if exact and rest is not None and rest.atoms:  # on some ways only the items stand where they were
            length = self.store.get((atom, LENGTH))
            found = [item.with_(length.varies) for item in found] if length is not None else found
        if atom.cls == "builtins.dict":
            for name in tuple(self.store.names.get(atom, ())):
                stored = self.store.get((atom, name)) if isinstance(name, tuple) and name[0] == "key" else None
                if stored is not None:
                    found.append(stored)
        return found

    # -- budgets ------------------------------------------------------------------------------------------------

    def give_up(self, tree: Node, items: list[Node]) -> None:
        """Keep what a block has done, `items` of `tree`, that is left because a call takes too many steps."""
        items += [*self.partial, Lost(UNFINISHED, getattr(tree, "node", self.frame.module.tree))]
        self.partial = [tree]

    def gives_up(self, node: ast.AST, reason: str) -> Value:
        """Count that something is passed over, put it into the tree of events, and return a lost value."""
        self.lost[reason] = self.lost.get(reason, 0) + 1
        self.events.append(Lost(reason, node))
        return one(Unknown(LOST_VALUE, reason), LOST, LOST)
