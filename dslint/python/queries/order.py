"""What may run after an event, and what has certainly run before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dslint.python.events import (
    BREAK,
    CONTINUE,
    RAISE,
    RETURN,
    Alt,
    Call,
    Context,
    Event,
    Exit,
    Loop,
    Lost,
    Node,
    Seq,
    Try,
    children,
    events,
    walk,
)

_MOST_WAYS = 12


def following(tree: Node, event: Event, *, again: bool = True) -> Iterator[Event]:
    """Yield the events that may run after `event`, in the order in which they do; a loop around it begins again.

    Without `again` each loop around it is in its last turn.
    """
    path = next(ways(tree, event), [])
    for parent, child in reversed(list(pairwise(path))):
        if isinstance(parent, Alt):
            continue  # its other side is no later than this one
        inside = list(parent.items) if isinstance(parent, Seq) else list(children(parent))
        at = next(number for number, node in enumerate(inside) if node is child)
        for node in inside[at + 1 :]:
            yield from events(node)
        if isinstance(parent, Loop) and child is parent.body and again:
            yield from events(parent.body)


def ways(tree: Node, event: Event) -> Iterator[list[Node]]:
    """Yield the nodes from the tree down to the event, with both: a few of the ways, where several calls lead there."""
    parents: dict[int, list[Node]] = {}
    for node in walk(tree):
        for child in children(node):
            parents.setdefault(id(child), []).append(node)
    leading, above = {id(event)}, list[Node]((event,))
    while above:
        found = [node for node in parents.get(id(above.pop()), ()) if id(node) not in leading]
        leading |= {id(node) for node in found}
        above += found
    pending: list[tuple[Node, ...]] = [(tree,)] if id(tree) in leading else []
    count = 0
    while pending and count < _MOST_WAYS:
        path = pending.pop()
        if path[-1] is event:
            count += 1
            yield list(path)
        pending.extend((*path, child) for child in reversed(children(path[-1])) if id(child) in leading)


@dataclass(frozen=True, slots=True)
class Before:
    """One way to an event: what has done something by then, each where another side of a test has not.

    `tests` decide since then whether the program comes to the event; `way` leads down to it.
    """

    done: tuple[Event, ...]
    tests: tuple[Alt, ...]
    way: tuple[Node, ...]


def deciding(tree: Node, event: Event) -> list[Before]:
    """Return for each way to an event the tests that decide whether the program comes there."""
    return before(tree, event, lambda _: False, lambda _: False)


def before(
    tree: Node,
    event: Event,
    does: Callable[[Event], bool],
    undoes: Callable[[Event], bool],
    is_done: Callable[[Alt], Seq | None] = lambda _: None,
) -> list[Before]:
    """Return for each way to an event what has certainly done something before it that nothing may have undone.

    `is_done` gives the side of a test that is only taken where it has been done already.
    """
    spawns = frozenset(id(e.node) for e in events(tree) if "spawns" in e.tags)
    past = _Past(event.lanes, does, undoes, is_done, spawns)
    return [past.on(way) for way in ways(tree, event)]


@dataclass(frozen=True, slots=True)
class _Done:
    """What a node has done for certain once it is over, and whether it may undo what was done before."""

    done: tuple[Event, ...] = ()
    undone: bool = False

    def then(self, later: _Done) -> _Done:
        if later.undone:
            return later
        return _Done(self.done or later.done, self.undone)


_NOTHING = _Done()


@dataclass(slots=True)
class _Past:
    """Answers what the nodes before an event have done on the lanes that come to it."""

    lanes: int
    does: Callable[[Event], bool]
    undoes: Callable[[Event], bool]
    is_done: Callable[[Alt], Seq | None]
    spawns: frozenset[int]  # the nodes of calls that start other processes
    known: dict[int, _Done] = field(default_factory=dict)
    left: dict[int, frozenset[str]] = field(default_factory=dict)

    def on(self, way: Sequence[Node]) -> Before:
        done, tests = _NOTHING, list[Alt]()
        for parent, child in pairwise(way):
            if isinstance(parent, Seq):
                for item in parent.items:
                    if item is child:
                        break
                    found = done.then(self._passed(item))
                    if found.done and found.done is not done.done:
                        tests = []
                    else:
                        tests += self._deciding(item)
                    done = found
            elif isinstance(parent, Alt):
                tests += [parent] if len(self._sides(parent)) > 1 else []
            elif isinstance(parent, Call) and id(parent.node) in self.spawns:
                done, tests = _NOTHING, []
            elif isinstance(parent, Loop):
                done = _NOTHING if self.of(parent.body).undone else done
            elif isinstance(parent, Try) and child is not parent.body:
                body = self.of(parent.body)
                done = done.then(body if child is parent.orelse else _Done((), body.undone))
        return Before(done.done, tuple(tests), tuple(way))

    def _passed(self, node: Node) -> _Done:
        """Return what a node has done where control goes on behind it."""
        if not isinstance(node, Alt):
            return self.of(node)
        return self._alternatives(node, [side for side in self._sides(node) if not ends(side)])

    def of(self, node: Node) -> _Done:
        """Return what a node has done once it is over."""
        found = self.known.get(id(node))
        if found is None:
            found = self.known[id(node)] = self._of(node)
        return found

    def _of(self, node: Node) -> _Done:
        if isinstance(node, Event):
            is_sure = not node.may and node.lanes & self.lanes == self.lanes
            return _Done((), True) if self.undoes(node) else _Done((node,) if is_sure and self.does(node) else ())
        if isinstance(node, Seq):
            return self._of_block(node)
        if isinstance(node, Alt):
            return self._alternatives(node, [side for side in self._sides(node) if ends(side) != RAISE])
        if isinstance(node, Loop):
            found = self.of(node.body)
            return found if node.at_least_once else _Done((), found.undone)
        if isinstance(node, Call):
            returned: list[_Done] = []
            end = self._of_block(node.body, returned)
            return _NOTHING if id(node.node) in self.spawns else _either([*returned, end])
        if isinstance(node, Try):
            ways = [self.of(node.body).then(self.of(node.orelse))]
            ways += [_Done((), ways[0].undone).then(self.of(h)) for h in node.handlers if ends(h) != RAISE]
            return _either(ways).then(self.of(node.final))
        return self.of(node.body) if isinstance(node, Context) else _Done((), isinstance(node, Lost))

    def _of_block(self, block: Seq, returned: list[_Done] | None = None) -> _Done:
        """Return what a block has done at its end; `returned` gets the same for where it returns before."""
        done, is_left = _NOTHING, False
        for item in block.items:
            sides = self._sides(item) if isinstance(item, Alt) and returned is not None else []
            early = [side for side in sides if ends(side) == RETURN]
            if isinstance(item, Alt) and returned is not None and early:
                returned += [done.then(self.of(side)) for side in early]
                rest = [side for side in sides if side not in early and ends(side) != RAISE]
                found, leaves = self._alternatives(item, rest), any(map(self._leavings, rest))
            else:
                found, leaves = self.of(item), bool(self._leavings(item))
            done = done.then(_Done((), found.undone) if is_left else found)
            is_left = is_left or leaves
        return done

    def _alternatives(self, alt: Alt, sides: list[Seq]) -> _Done:
        there = self.is_done(alt) if len(sides) > 1 else None
        return _either([self.of(side) for side in sides if side is not there])

    def _sides(self, alt: Alt) -> list[Seq]:
        sides = ((alt.then, alt.then_lanes), (alt.orelse, alt.else_lanes))
        return [side for side, lanes in sides if lanes & self.lanes]

    def _deciding(self, node: Node) -> list[Alt]:
        """Return the tests in a node by which control may leave the block around it."""
        if isinstance(node, Event | Call) or not (self._leavings(node) or isinstance(node, Alt)):
            return []
        inner = [test for child in children(node) for test in self._deciding(child)]
        sides = self._sides(node) if isinstance(node, Alt) else []
        if isinstance(node, Alt) and len(sides) > 1 and any(self._leavings(side) or ends(side) for side in sides):
            return [node, *inner]
        return inner

    def _leavings(self, node: Node) -> frozenset[str]:
        """Return the ways in which control may leave the block of a node early."""
        found = self.left.get(id(node))
        if found is None:
            inner = self._sides(node) if isinstance(node, Alt) else children(node)
            found = frozenset((node.kind,)) if isinstance(node, Exit) else frozenset[str]()
            found = found.union(*map(self._leavings, inner)) - {RAISE}
            if isinstance(node, Call):
                found = frozenset()
            elif isinstance(node, Loop):
                found = found & {RETURN}
            self.left[id(node)] = found
        return found


def _either(ways: list[_Done]) -> _Done:
    """Return what is done on each of several ways."""
    done: tuple[Event, ...] = tuple(dict.fromkeys(event for way in ways for event in way.done))
    return _Done(done if all(way.done for way in ways) else (), any(way.undone for way in ways))


def ends(block: Seq) -> str:
    """Return how a block ends early in any case; empty where it does not."""
    last = block.items[-1] if block.items else None
    if isinstance(last, Seq):
        return ends(last)
    return last.kind if isinstance(last, Exit) and last.kind in (RETURN, BREAK, CONTINUE, RAISE) else ""
