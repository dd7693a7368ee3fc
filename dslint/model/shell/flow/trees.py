"""Values that depend on forks, as trees: choices inside choices, whose arms may share what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dslint.core.fact import Fact
from dslint.model.shell.flow.choices import Choice, Deferred, Fork, ForkNeededError, Unknown, World
from dslint.model.shell.pieces import UnknownWordError, Value

T = TypeVar("T")

# How many forks a value may depend on that is worked out at the assignment.
_MAX_EAGER = 8
# How many ways to a result are told apart.
_MAX_PATHS = 64


def tree_of(compute: Callable[[World], T], world: World, limit: int = _MAX_EAGER) -> Any:
    """The result of ``compute`` as a choice between the worlds that it tells apart, ``None`` for more than ``limit``.

    Errors of ``compute`` other than that a fork is missing become :class:`Unknown`.
    """
    found = _Tree(compute, limit)
    tree = found.build(world, 0)
    return None if found.count > limit else tree


class _Tree:
    """The worlds that :func:`tree_of` tells apart. An inner function that calls itself would be garbage in a ring."""

    __slots__ = ("compute", "count", "limit")

    def __init__(self, compute: Callable[[World], Any], limit: int) -> None:
        self.compute = compute
        self.limit = limit
        self.count = 0

    def build(self, world: World, depth: int) -> Any:
        """The result below a world in which ``depth`` forks are settled."""
        try:
            leaf: Any = self.compute(world)
        except ForkNeededError as error:
            fork = error.fork
            if depth > self.limit:
                self.count = self.limit + 1
                return None
            worlds = [world.such(fork, number) for number in range(len(fork.arms))]
            arms = [self.build(w, depth + 1) if self.count <= self.limit and w.is_possible() else None for w in worlds]
            return joined(fork, arms)
        except UnknownWordError as error:
            leaf = Unknown(error.why, addresses=error.addresses)
        self.count += 1
        return leaf


def joined(fork: Fork, arms: Sequence[Any]) -> Any:
    """A choice, or what all arms have in common; an arm that is ``None`` is never taken."""
    real = [a for a in arms if a is not None]
    if not real:
        return None
    if all(is_same(a, real[0]) for a in real[1:]):
        # Two values that nobody knows are not one value.
        return real[0] if not isinstance(real[0], Unknown) or len(set(real)) == 1 else Unknown(real[0].why)
    return Choice(fork, tuple(real[0] if a is None else a for a in arms))


def is_same(one: Any, other: Any) -> bool:
    """Both mean the same, whatever places they come from."""
    if one is other or (isinstance(one, Unknown) and isinstance(other, Unknown)):
        return True
    if isinstance(one, Value) and isinstance(other, Value):
        return (one.text, one.items, one.keys) == (other.text, other.items, other.keys)
    if isinstance(one, Fact) and isinstance(other, Fact):
        return (one.state, one.value) == (other.state, other.value)
    if isinstance(one, (Choice, Deferred, Unknown)) or isinstance(other, (Choice, Deferred, Unknown)):
        return False
    return bool(one == other)


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """The tree with other leaves; what several arms share is worked out once."""
    return _mapped(tree, function, {})


def _mapped(tree: Any, function: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    if not isinstance(tree, Choice):
        return function(tree)
    if id(tree) not in done:
        done[id(tree)] = joined(tree.fork, [_mapped(arm, function, done) for arm in tree.arms])
    return done[id(tree)]


def preferred(tree: Any) -> Any:
    """The tree without forks that go one way unless the environment says something else."""
    return _preferred(tree, {})


def _preferred(tree: Any, done: dict[int, Any]) -> Any:
    while isinstance(tree, Choice) and tree.fork.preferred is not None:
        tree = tree.arms[tree.fork.preferred]
    if not isinstance(tree, Choice):
        return tree
    if id(tree) not in done:
        done[id(tree)] = joined(tree.fork, [_preferred(arm, done) for arm in tree.arms])
    return done[id(tree)]


def overridden(tree: Any) -> set[str]:
    """Names that the caller may set, so that such forks go another way."""
    forks = (node.fork for node in _nodes(tree) if isinstance(node, Choice))
    return {name for fork in forks if fork.preferred is not None for name in fork.names}


def _nodes(tree: Any) -> Iterator[Any]:
    """The choices and leaves of a tree, each once, however many arms share it."""
    todo, seen = [tree], {id(tree)}
    while todo:
        node = todo.pop()
        yield node
        for arm in node.arms if isinstance(node, Choice) else ():
            if id(arm) not in seen:
                seen.add(id(arm))
                todo.append(arm)


# A test and the result under which a piece of the script runs.
Guard = tuple[Any, Any]


def tests_of(guards: Sequence[Guard]) -> tuple[str, ...]:
    """The tests of guards as they are written, those that people count on left out."""
    forks = dict.fromkeys(node.fork for tree, _ in guards for node in _nodes(tree) if isinstance(node, Choice))
    conditions = [arm.condition for fork in forks for arm in fork.arms if arm.condition is not None]
    return tuple(dict.fromkeys(condition.text for condition in conditions))


def chosen(guards: Sequence[Guard], yes: Any, no: Any) -> Any:
    """``yes`` where all guards hold, ``no`` elsewhere."""
    for tree, result in reversed(guards):
        yes = mapped(tree, partial(_either, result, yes, no))
    return yes


def _either(result: Any, yes: Any, no: Any, leaf: Any) -> Any:
    return yes if leaf == result else no


def leaves(tree: Any) -> set[Any]:
    """The results that are possible."""
    return {node for node in _nodes(tree) if not isinstance(node, Choice)}


def paths(tree: Any, result: Any) -> list[dict[Fork, int]]:
    """How the forks must have gone for this result; one path that demands nothing where there are too many."""
    found = _paths(tree, result, {})
    return [{}] if found is None else found


def _paths(tree: Any, result: Any, done: dict[int, list[dict[Fork, int]]]) -> list[dict[Fork, int]] | None:
    if not isinstance(tree, Choice):
        return [{}] if tree == result else []
    if id(tree) not in done:
        found: list[dict[Fork, int]] = []
        for number, arm in enumerate(tree.arms):
            below = _paths(arm, result, done)
            if below is None or len(found) + len(below) > _MAX_PATHS:
                return None
            found += [{tree.fork: number, **path} for path in below]
        done[id(tree)] = found
    return done[id(tree)]
