"""What a shell script has set at one point: variables, exports, directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.launch.command import Condition
from dslint.model.shell.flow.choices import (
    TOO_MANY,
    UNSET,
    Choice,
    Deferred,
    Flow,
    Fork,
    ForkNeededError,
    Limits,
    Unknown,
    World,
    resolve,
)
from dslint.model.shell.flow.trees import Guard, chosen, is_same, paths
from dslint.model.shell.pieces import ALWAYS_SET, Lookup, Value
from dslint.parse.shell import with_returns

# The end of the reason for which a command does not see a variable of the shell.
NOT_EXPORTED = "is set but not exported"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A command line kept in a variable: its text as written and where that begins in the file.

    ``scope`` is the state at the assignment, whose values bash put into it. ``is_part``: it is no whole command line,
    or holds escapes (``\\$SLURM_PROCID``), and is read only as a piece of the text of ``bash -c``.
    """

    text: str
    start: int
    scope: Scope
    is_part: bool = False


@dataclass(slots=True, eq=False)
class Scope:
    """Variables by name: a value, an unknown one, or a choice between them; a name that is missing was never set.

    ``exports``, ``directory`` and ``templates`` may hold choices too. ``open`` says that a sourced file or an
    ``eval`` may have set any name. ``guards`` are the tests that led here, ``world`` what they say about single
    forks, ``limits`` about several. ``ended``: the control flow never comes here (``exit``).
    """

    values: dict[str, Any] = field(default_factory=dict)
    exports: dict[str, Any] = field(default_factory=dict)
    open: bool = False
    export_all: bool = False
    # Another machine runs this: the variables of the shell are only put into the text that it gets.
    remote: bool = False
    directory: Any = field(default_factory=absent)
    # Where `cd -` leads, and the stack of `pushd` (``None``: nobody knows).
    previous: Any = field(default_factory=lambda: unknown("nobody has changed the directory"))
    stack: tuple[Any, ...] | None = ()
    # The path of the script, ``None`` where the text is no script of its own.
    script: str | None = None
    templates: dict[str, Any] = field(default_factory=dict)
    world: dict[Fork, int] = field(default_factory=dict)
    limits: Limits = ()
    guards: tuple[Guard, ...] = ()
    # Names that a test found to hold one text, with what they hold otherwise.
    refined: dict[str, tuple[Any, Value, Fork]] = field(default_factory=dict)
    ended: bool = False
    # Another one after code that may have set any name.
    epoch: object = None
    flow: Flow = field(default_factory=Flow)
    # Names that ``declare -i`` may have made numbers.
    integers: frozenset[str] = frozenset()
    # The environment is known to its end: a name that nobody has set is not set.
    is_whole: bool = False

    def copy(self) -> Scope:
        """The same state for a subshell or a branch."""
        new = Scope.__new__(Scope)
        new.become(self)
        return new

    def become(self, other: Scope) -> None:
        """Take over the state of another scope."""
        for name in _TABLES:
            setattr(self, name, getattr(other, name).copy())
        for name in _OTHERS:
            setattr(self, name, getattr(other, name))

    def at(self, world: World) -> Scope:
        """The state in one world."""
        new = self.copy()
        new.world = {**self.world, **world.arms}
        return new

    def here(self) -> World:
        """What is known of the forks at this place."""
        return World(self.world, self.limits)

    def under(self, test: Any, result: Any) -> Scope:
        """A copy of the state for the arm in which the test has this result."""
        new = self.copy()
        new.guards = (*self.guards, (test, result))
        ways = [way for way in paths(test, result) if all(self.world.get(f, n) == n for f, n in way.items())]
        if len(ways) > 1:
            new.limits = (*self.limits, tuple(ways))
        for fork, number in ways[0].items() if len(ways) == 1 else ():
            new.world[fork] = number
            arm = fork.arms[number]
            if arm.rule is not None and arm.rule.name and arm.rule.holds and len(arm.rule.texts) == 1:
                new.refine(arm.rule.name, next(iter(arm.rule.texts)), fork, arm.condition)
        return new

    def refine(self, name: str, text: str, fork: Fork, condition: Condition | None) -> None:
        """A test found that this name holds this text."""
        try:
            original = resolve(self.values.get(name, UNSET), self.here())
        except ForkNeededError:
            return
        if text and not isinstance(original, Value):
            places = (condition.location,) if condition is not None else ()
            self.refined[name] = (original, Value(text, None, places), fork)

    def held(self, name: str, world: World) -> Any:
        """What the variable holds in this world.

        Raises:
            ForkNeededError: the world does not say.
        """
        original = resolve(self.values.get(name, UNSET), world)
        if name not in self.refined or self.refined[name][0] is not original:
            return original
        _, value, fork = self.refined[name]
        world.used[fork] = None
        return value

    def assign(self, name: str, value: Any, export: bool = False) -> None:
        """``name=value``; ``None`` for a value that is not known."""
        self.values[name] = Unknown() if value is None else value
        self.templates.pop(name, None)
        if export or self.export_all:
            self.exports[name] = True

    def remove(self, name: str) -> None:
        """``unset name``."""
        self.values.pop(name, None)
        self.templates.pop(name, None)
        self.exports.pop(name, None)
        self.refined.pop(name, None)

    def forget(self, names: Iterable[str] | None, why: str = "") -> None:
        """These variables (``None``: all) may have changed."""
        if names is None:
            self.open = True
            self.epoch = object()
            self.templates = {}
            self.refined = {}
            names = list(self.values)
        # A set has another order in each run, and the order of names is shown.
        for name in sorted(names):
            self.values[name] = Unknown(why)
            self.templates.pop(name, None)

    def join(self, other: Scope, guards: tuple[Guard, ...]) -> None:
        """Control flow may have come here with either state: with the other one where the guards hold."""

        def either(mine: Any, theirs: Any) -> Any:
            return mine if mine is theirs else chosen(guards, theirs, mine)

        for name in {**self.values, **other.values}:
            held = either(self.values.get(name, UNSET), other.values.get(name, UNSET))
            self.values[name] = held
            if held is UNSET:
                del self.values[name]
        for name in {**self.exports, **other.exports}:
            self.exports[name] = either(self.exports.get(name, False), other.exports.get(name, False))
        for name in {**self.templates, **other.templates}:
            self.templates[name] = either(self.templates.get(name, False), other.templates.get(name, False))
        self.directory = either(self.directory, other.directory)
        self.previous = either(self.previous, other.previous)
        self.world = dict(self.world.items() & other.world.items())
        self.limits = tuple(group for group in self.limits if any(group is g for g in other.limits))
        self._meet(other)

    def merge(self, other: Scope) -> None:
        """The same where nothing tells the two apart: what differs is not known."""
        for name in {**self.values, **other.values}:
            mine, theirs = self.values.get(name, UNSET), other.values.get(name, UNSET)
            if mine is not theirs and (isinstance(mine, Unknown) or not is_same(mine, theirs)):
                self.values[name] = Unknown("set in a loop")
        names = [n for n in {**self.exports, **other.exports} if not self._same("exports", n, other)]
        self.forget(names, "exported in a loop")
        for name in names:
            self.exports[name] = True
        self.templates = {n: t for n, t in self.templates.items() if other.templates.get(n) is t}
        if not is_same(self.directory, other.directory):
            self.directory = unknown("the directory depends on a loop")
        if not is_same(self.previous, other.previous):
            self.previous = unknown("the directory depends on a loop")
        self._meet(other)

    def _same(self, part: str, name: str, other: Scope) -> bool:
        return is_same(getattr(self, part).get(name, False), getattr(other, part).get(name, False))

    def _meet(self, other: Scope) -> None:
        self.open = self.open or other.open
        self.stack = self.stack if self.stack is other.stack else None
        self.integers |= other.integers
        self.export_all = self.export_all or other.export_all
        self.epoch = self.epoch if self.epoch is other.epoch else object()
        self.refined = {n: r for n, r in self.refined.items() if other.refined.get(n) is r}

    @property
    def cwd(self) -> Fact[str]:
        """The directory, as far as the place says which one it is."""
        if isinstance(self.directory, Fact):
            return self.directory
        try:
            found: Fact[str] = resolve(self.directory, self.here())
        except ForkNeededError:
            return unknown("the directory depends on a condition")
        return found

    def is_without(self, name: str) -> bool:
        """Whether a name that nobody has set is certain to be empty."""
        is_plain = name[:1].isalpha() or name[:1] == "_"
        return self.is_whole and not self.open and is_plain and not ALWAYS_SET.fullmatch(name)

    def lookup(self, world: World | None = None) -> Lookup:
        """The view that word expansion needs, in this world."""
        inner = self.here() if world is None else world
        if world is not None and not self.world.items() <= world.arms.items():
            inner = World({**self.world, **world.arms}, world.limits, (), world.depth)
            inner.used = world.used

        return _View(self, inner)

    def undecided(self) -> list[str]:
        """Exported names that are not the same in all worlds."""
        return [
            name
            for name, export in self.exports.items()
            if export is not False
            and (isinstance(export, Choice) or isinstance(self.values.get(name), (Choice, Deferred)))
        ]

    def exported(self, name: str, world: World) -> Fact[str]:
        """What a command started here finds in its environment under this name.

        Raises:
            ForkNeededError: the world does not say.
        """
        held = self.values.get(name, UNSET)
        if resolve(self.exports.get(name, False), world) is False:
            if self.remote:
                return absent()
            places = held.origins if isinstance(held, Value) else ()
            return unknown(f"`{name}` {NOT_EXPORTED}", *places)
        held = self.held(name, world)
        if isinstance(held, Value) and held.items is not None:
            return absent()  # arrays stay in the shell
        if isinstance(held, Value):
            return known(with_returns(held.text), *held.origins)
        if held is UNSET:
            return absent()
        return unknown(held.why or f"`{name}` is computed", *getattr(held, "addresses", ()))

    def environment(self, world: World | None = None) -> dict[str, Fact[str]]:
        """What a command started here finds in its environment, as far as this script sets it."""
        env: dict[str, Fact[str]] = {}
        where = self.here() if world is None else world
        for name in {**self.values, **self.exports}:
            if not name[0].isalpha() and name[0] != "_":
                continue  # an argument of the script or of a function
            try:
                fact = self.exported(name, where)
            except ForkNeededError:
                fact = unknown(TOO_MANY)
            if not fact.is_absent:
                env[name] = fact
        if self.open:
            env[""] = unknown("a sourced file or `eval` may set any variable")
        return env


_TABLES = ("values", "exports", "templates", "world", "refined")
_OTHERS = tuple(f.name for f in fields(Scope) if f.name not in _TABLES)


class _View(Lookup):
    """The variables of a scope in one world."""

    __slots__ = ("_scope", "_world")

    def __init__(self, scope: Scope, world: World) -> None:
        super().__init__("IFS" not in scope.values, scope.script)
        self._scope = scope
        self._world = world

    def get(self, name: str) -> Value | None:
        held = self._scope.held(name, self._world)
        if held is UNSET and self._scope.is_without(name):
            return Value()
        return held if isinstance(held, Value) else None

    def is_unset(self, name: str) -> bool:
        found = not self._scope.open and self._scope.held(name, self._world) is UNSET
        self.has_default |= found and not self._scope.is_whole
        return found

    def is_without(self, name: str) -> bool:
        return self._scope.held(name, self._world) is UNSET and self._scope.is_without(name)

    def reason(self, name: str) -> str:
        held = self._scope.held(name, self._world)
        return held.why if isinstance(held, Unknown) else _unset_reason(name, self._scope.open)

    def addresses(self, name: str) -> tuple[Location, ...]:
        held = self._scope.held(name, self._world)
        return held.addresses if isinstance(held, Unknown) else ()

    @property
    def home(self) -> str | None:
        held = self._scope.held("HOME", self._world) if self._scope.is_whole else UNSET
        return held.text if isinstance(held, Value) else None

    @property
    def folder(self) -> str | None:
        scope = self._scope
        if scope.script is None:
            return None
        folder = scope.at(self._world).cwd if isinstance(scope.directory, Choice) else scope.cwd
        return None if folder.is_unknown else folder.get_or(".")


def _unset_reason(name: str, is_open: bool) -> str:
    if name == "RANDOM":
        return "`$RANDOM` is another number each time"
    if len(name) > 2 and not name.strip("_"):
        return "it is filled in before the shell runs"  # ``${{ matrix.gpus }}`` of a workflow
    if name.isdigit() or name in ("@", "*"):
        return f"`${name}` is an argument of the script"
    return f"`${name}` may come from a sourced file" if is_open else f"`${name}` is never set in this file"
