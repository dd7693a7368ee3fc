"""The process group of a run: the calls that make it, and which of them has certainly come before another call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import pairwise

from dslint.python.durations import seconds_of
from dslint.python.events import Alt, Event, Node, Seq, events
from dslint.python.jobtests import holds_with_group
from dslint.python.queries.groupless import Groupless, Lonely
from dslint.python.queries.order import Before, before
from dslint.python.values import Const, Value
from dslint.rules.ranks.devices import written
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.runs import RunQuery


def makes_group(event: Event) -> bool:
    """Return whether an event makes the default process group, or takes the one that is there."""
    return "default-group" in event.tags


def ends_group(event: Event) -> bool:
    """Return whether an event destroys the default process group."""
    group = event.arguments.get("group")
    return "destroys-group" in event.tags and (group is None or group.constants == (None,))


def after_group(run: RunQuery, *tags: str) -> Iterator[tuple[Event, Before]]:
    """Yield the events with one of the tags that come, on some way, when the process group certainly exists.

    The calls that have made it are what is `done`.
    """
    wanted = frozenset(tags)
    for _, tree in run.trees():
        found = list(events(tree))
        if not any(map(makes_group, found)):
            continue
        for event in found:
            if event.tags & wanted:
                ways = before(tree, event, makes_group, ends_group, _has_group)
                yield from ((event, past) for past in ways if past.done)


def lonely_events(
    run: RunQuery,
    needs: Callable[[Event], bool],
    may_make: Callable[[Event], bool],
    concerns: Callable[[Seq], bool] = lambda _: True,
) -> Iterator[tuple[Seq, list[Lonely]]]:
    """Yield the trees that concern a rule, each with the events that need a group where a run has made none.

    `may_make` says of which events nobody knows whether they make one.
    """
    if not run.has("default-group"):
        return
    spawns = frozenset(id(found.event.node) for found in run.happenings("spawns"))
    for _, tree in run.trees():
        if concerns(tree):
            yield tree, Groupless(run.machine.worlds, makes_group, may_make, ends_group, needs, spawns).of(tree)


def _has_group(alt: Alt) -> Seq | None:
    """Return the side of a test like `if dist.is_initialized()` on which there is certainly a group."""
    answer = holds_with_group(alt.test)
    return None if answer is None else alt.then if answer else alt.orelse


def is_without_group(event: Event, around: tuple[Node, ...]) -> bool:
    """Return whether an event comes only where there is no process group: no other rank is there, or is met yet."""
    for test, inner in pairwise((*around, event)):
        side = _has_group(test) if isinstance(test, Alt) else None
        if (
            side is not None
            and isinstance(test, Alt)
            and _lies_in(test.orelse if side is test.then else test.then, inner)
        ):
            return True
    return False


def _lies_in(block: Seq, node: Node) -> bool:
    return any(item is node or (isinstance(item, Seq) and _lies_in(item, node)) for item in block.items)


# -- what a call is given ---------------------------------------------------------------------------------------


def timeout_of(run: RunQuery, event: Event) -> Value | None:
    """Return the timeout that a call gets; `None` for none, and for `None`."""
    return _given(event, timeout_name(run, event))


def timeout_name(run: RunQuery, event: Event) -> str:
    """Return the parameter that takes the timeout."""
    return str(row_of(run, event).get("timeout", "timeout"))


def backend_of(run: RunQuery, event: Event) -> Value | None:
    """Return the backend that a call gets."""
    return _given(event, backend_name(run, event))


def backend_words(run: RunQuery, event: Event) -> tuple[object, ...] | None:
    """Return the backends that a call may get; of an option or open parameter its default."""
    return run.likely(backend_of(run, event))


def backend_name(run: RunQuery, event: Event) -> str:
    """Return the parameter that takes the backend."""
    return str(row_of(run, event).get("backend", "backend"))


def _given(event: Event, name: str) -> Value | None:
    value = event.arguments.get(name)
    return None if value is None or value.constants == (None,) else value


def may_have_timeout(run: RunQuery, event: Event) -> bool:
    """Return whether a call gets a timeout, or something that may hold one."""
    return timeout_of(run, event) is not None or is_open(event)


def is_open(event: Event) -> bool:
    """Return whether a call may get more than is written: unpacked arguments, or handlers of accelerate."""
    return event.open or _given(event, "kwargs_handlers") is not None


def may_be_none(value: Value) -> bool:
    """Return whether a value may be `None`."""
    return Const(None) in value.atoms


def argument_text(run: RunQuery, event: Event, name: str) -> tuple[str, ast.AST]:
    """Return what an argument is called, with its place; the call itself where the argument is unpacked."""
    node = written(event, name)
    if node is not event.node:
        return run.text(event.module, node), node
    constants = event.arguments[name].constants
    return (repr(constants[0]) if constants is not None and len(constants) == 1 else name), node


def called(run: RunQuery, event: Event) -> str:
    """Return the name of what is called, as the code has it."""
    node = event.node
    return run.text(event.module, node.func if isinstance(node, ast.Call) else node)


def is_same_duration(first: Value, second: Value) -> bool | None:
    """Return whether two timeouts are the same; `None` where nobody knows."""
    if first.number is not None and first.number == second.number:
        return True
    one, two = _seconds(first), _seconds(second)
    if one is None or two is None:
        return None
    return one == two


def _seconds(value: Value) -> float | None:
    """Return how long a timeout is: a `timedelta`, or a number for transformers."""
    numbers = value.constants
    if numbers is not None and len(numbers) == 1 and isinstance(numbers[0], int | float):
        return float(numbers[0])
    return seconds_of(value)
