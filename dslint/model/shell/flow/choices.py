"""Values that depend on a test whose result nobody can read.

Such a test is a :class:`Fork`. What its arms leave differently becomes a :class:`Choice` between the arms; a choice
is resolved in a :class:`World`, which says how the forks went. Nothing is expanded before a command needs it, and a
command is expanded once for each world that its words tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dslint.core.source import Location
from dslint.model.launch.command import Condition
from dslint.model.shell.pieces import UnknownWordError, Value

T = TypeVar("T")

# How many ways a command may look.
MAX_WORLDS = 16
# Values that are put off until a command needs them, one inside the other.
_MAX_DEFERRED = 30
TOO_MANY = "too many alternatives"


class Unknown:
    """A value that cannot be read, and why. Two of them are never the same value.

    ``is_input``: it is what the caller of the script hands over (``STAGE=$1``), so that a default may replace it.
    ``addresses``: it is the address of a machine, which is asked for there.
    """

    __slots__ = ("addresses", "is_input", "why")

    def __init__(self, why: str = "", is_input: bool = False, addresses: tuple[Location, ...] = ()) -> None:
        self.why = why
        self.is_input = is_input
        self.addresses = addresses


class Unset:
    """A name that nothing in the file has set."""

    __slots__ = ()


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Rule:
    """What an arm says about a text: it is one of ``texts``, or (not ``holds``) none of them.

    ``name`` is the variable when the text is the value of one.
    """

    subject: object
    texts: frozenset[str]
    holds: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way that a test can go: the condition as a person reads it, and what it says about a value.

    Without a condition: the normal way, of which nobody needs to be told (``cd x && ...``).
    """

    condition: Condition | None
    rule: Rule | None = None


@dataclass(eq=False, slots=True)
class Fork:
    """A test whose result is not known.

    ``preferred`` is the arm that runs unless the caller sets one of ``names``.
    """

    arms: tuple[Arm, ...]
    preferred: int | None = None
    names: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Choice:
    """What something is in each arm of a fork; an arm may hold another choice."""

    fork: Fork
    arms: tuple[Any, ...]


class ForkNeededError(UnknownWordError):
    """The result depends on a fork that the world says nothing about."""

    def __init__(self, fork: Fork) -> None:
        super().__init__("depends on a condition")
        self.fork = fork


# Groups of paths: in each group one must be the way that was taken.
Limits = tuple[tuple[dict[Fork, int], ...], ...]


class World:
    """How the forks went: the number of an arm for each of them.

    ``used`` are those that were asked for. ``limits``: of each group of paths the world must follow one.
    """

    __slots__ = ("arms", "depth", "limits", "used")

    def __init__(
        self, arms: dict[Fork, int] | None = None, limits: Limits = (), used: Collection[Fork] = (), depth: int = 0
    ) -> None:
        self.arms = arms or {}
        self.limits = limits
        self.used: dict[Fork, None] = dict.fromkeys(used) if used else {}
        self.depth = depth

    def arm(self, fork: Fork) -> int:
        """The arm that was taken.

        Raises:
            ForkNeededError: this world does not say.
        """
        number = self.arms.get(fork)
        if number is None:
            raise ForkNeededError(fork)
        self.used[fork] = None
        return number

    def such(self, fork: Fork, number: int) -> World:
        """This world, in which the fork went so."""
        return World({**self.arms, fork: number}, self.limits, self.used, self.depth)

    def fresh(self) -> World:
        """The same world, in which nothing was asked for."""
        return World(self.arms, self.limits, (), self.depth)

    def is_possible(self) -> bool:
        """No two arms contradict each other: ``$1`` is not both ``a`` and ``b``."""
        for group in self.limits:
            if not any(all(self.arms.get(f, number) == number for f, number in path.items()) for path in group):
                return False
        allowed: dict[object, frozenset[str]] = {}
        denied: dict[object, frozenset[str]] = {}
        for fork, number in self.arms.items():
            rule = fork.arms[number].rule
            if rule is None:
                continue
            if rule.holds:
                old = allowed.get(rule.subject)
                allowed[rule.subject] = rule.texts if old is None else old & rule.texts
            else:
                denied[rule.subject] = denied.get(rule.subject, frozenset()) | rule.texts
        return all(texts - denied.get(subject, frozenset()) for subject, texts in allowed.items())

    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of what was worked out in this world."""
        found = (fork.arms[self.arms[fork]].condition for fork in self.used if fork in self.arms)
        return tuple(sorted(filter(None, found), key=lambda c: (c.location.path, c.location.span.start)))


class Deferred:
    """A value that is worked out when a command needs it: its parts depend on several forks."""

    __slots__ = ("compute", "memo")

    def __init__(self, compute: Callable[[World], Value | Unknown]) -> None:
        self.compute = compute
        self.memo: dict[frozenset[tuple[Fork, int]], tuple[Value | Unknown, tuple[Fork, ...]]] = {}

    def value(self, world: World) -> Value | Unknown:
        """The value in this world.

        Raises:
            ForkNeededError: it depends on a fork that the world says nothing about.
        """
        key = frozenset(world.arms.items())
        if key not in self.memo:
            inner = World(world.arms, world.limits, (), world.depth + 1)
            if inner.depth > _MAX_DEFERRED:
                return Unknown(TOO_MANY)
            try:
                found: Value | Unknown = self.compute(inner)
            except ForkNeededError:
                raise
            except UnknownWordError as error:
                found = Unknown(error.why, addresses=error.addresses)
            except RecursionError:
                return Unknown(TOO_MANY)
            self.memo[key] = (found, tuple(inner.used))
        result, used = self.memo[key]
        world.used.update(dict.fromkeys(used))
        return result


def alternatives(compute: Callable[[World], T], world: World, limit: int) -> list[tuple[World, T]] | None:
    """The results of ``compute`` in the worlds that it tells apart, ``None`` for more than ``limit``."""
    todo, found = [world], []
    while todo:
        inner = todo.pop()
        try:
            found.append((inner, compute(inner)))
        except ForkNeededError as error:
            worlds = [inner.such(error.fork, number) for number in range(len(error.fork.arms))]
            todo += [w for w in reversed(worlds) if w.is_possible()]
        if len(todo) + len(found) > limit:
            return None
    return found


def resolve(tree: Any, world: World) -> Any:
    """What a choice is in this world.

    Raises:
        ForkNeededError: the world does not say.
    """
    while True:
        if isinstance(tree, Choice):
            tree = tree.arms[world.arm(tree.fork)]
        elif isinstance(tree, Deferred):
            tree = tree.value(world)
        else:
            return tree


@dataclass(slots=True)
class Flow:
    """What all parts of a script share: its forks by what they test, and how many turns of loops were read."""

    forks: dict[object, Fork] = field(default_factory=dict)
    turns: int = 0
    # Documentation shows ``exit`` where a reader leaves a shell; what follows is run too.
    in_docs: bool = False
    # Whether a path leads to something, where the script runs on this machine now.
    is_there: Callable[[str], bool] = lambda _: False

    def fork(self, key: object, arms: Callable[[], tuple[Arm, ...]]) -> Fork:
        """The fork of a test; the same test on unchanged variables is the same fork."""
        if key not in self.forks:
            self.forks[key] = Fork(arms())
        return self.forks[key]


def two_arms(
    place: Location, text: str, phrases: tuple[str, str] = ("", ""), rule: Rule | None = None
) -> tuple[Arm, ...]:
    """The arms of a test that holds or does not."""
    opposite = Rule(rule.subject, rule.texts, not rule.holds, rule.name) if rule is not None else None
    return (
        Arm(Condition(place, text, True, phrases[0]), rule),
        Arm(Condition(place, text, False, phrases[1]), opposite),
    )
