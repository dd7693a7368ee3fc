"""Files that one rank makes or removes and others use, with nothing in between that makes them wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.events import Alt, Call, Context, Event, Loop, Lost, Node, Seq, Try, children
from dslint.python.machine import Machine
from dslint.python.paths import Component, components, is_within
from dslint.python.queries.steps import tags_of
from dslint.python.queries.waits import Waits
from dslint.python.source import Module
from dslint.python.values import Function
from dslint.python.varies import DIVERGENT, LOST, RANKED

Path = tuple[Component, ...]
# What an event does to its path.
MAKES_FOLDER, WRITES, REMOVES, READS, LISTS = "makes the folder", "writes", "removes", "reads", "lists"
# How the ranks that go on may be made to wait where no event says so.
_WAITS = re.compile(
    r"(?i)barrier|synchroni|wait|sleep|gather|reduce|broadcast|bcast|main_process_first|lock\b|while\b.*(?:exist|is_?file)"
)
_LOOKS = re.compile(r"(?i)exist|is_?file|is_?dir")
_RANKED = re.compile(r"(?i)rank|is_?main|master|primary|leader")
_LISTS = frozenset({"glob", "rglob", "iterdir", "listdir", "scandir", "walk", "iglob", "get_last_checkpoint"})
# Ranks wait here for others of some group, which may be all.
_MEETS = frozenset({"barrier", "collective", "object-collective", "point-to-point"})
_TURNS = frozenset({"main-first", "local-main-first"})


@dataclass(frozen=True, slots=True)
class Use:
    """An event that touches a path: what it does, and the nodes around it, outermost first."""

    event: Event
    does: str
    path: Path
    around: tuple[Node, ...]
    at: int
    is_own: bool = False  # the path differs between the ranks

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the calls of functions around the event."""
        return tuple(node for node in self.around if isinstance(node, Call))


@dataclass(frozen=True, slots=True)
class Race:
    """`second` needs that `first` is done, and on some rank nothing makes it wait."""

    first: Use
    second: Use


def races(m: Machine, waits: Waits, tree: Seq) -> Iterator[Race]:
    """Yield each use of a path that may come before another rank has made it, or after one has removed it."""
    before: list[Use] = []
    for at, (node, around) in enumerate(_in_order(tree)):
        if isinstance(node, Lost) or (isinstance(node, Event) and (node.tags & _MEETS or waits.of(node) is not None)):
            before.clear()
        elif isinstance(node, Event):
            if any(isinstance(n, Context) and tags_of(m, n) & _TURNS for n in around):
                continue
            for does, path, varies in _touched(m, node):
                use = Use(node, does, path, around, at, bool(varies & DIVERGENT))
                yield from (Race(first, use) for first in before if _is_race(m, before, first, use))
                before.append(use)


def uses(m: Machine, tree: Seq) -> Iterator[Use]:
    """Yield all that a tree does to files and folders, in the order of the source."""
    for at, (node, around) in enumerate(_in_order(tree)):
        if isinstance(node, Event):
            for does, path, varies in _touched(m, node):
                yield Use(node, does, path, around, at, bool(varies & DIVERGENT))


def _is_race(m: Machine, before: list[Use], first: Use, second: Use) -> bool:
    """Return whether the second use goes wrong on a rank that comes before another rank has done the first."""
    if first.event.may or second.event.may or not _apart(m, first, second):
        return False
    if not _concerns(first, second) or _is_checked(first, second):
        return False
    if first.does == MAKES_FOLDER and any(_makes_it_too(m, use, first, second) for use in before):
        return False
    return not _may_wait(first, second)


def _apart(m: Machine, first: Use, second: Use) -> bool:
    """Return whether a rank comes to the second use, and another one (by its number) alone to the first."""
    one, two = first.event.lanes, second.event.lanes
    if second.does == REMOVES or (first.does == WRITES and second.does == LISTS):
        one, two = two, one  # who removes or lists it must wait for all that have used it
        first, second = second, first
    if first.event.varies & RANKED and not second.event.varies & DIVERGENT and one == two:
        return True  # a test of the rank with something that nobody knows
    for group in m.worlds.groups:
        does = [lane for lane in group if one >> lane & 1]
        others = [lane for lane in group if two >> lane & 1 and not one >> lane & 1]
        if does and others:
            return True
    return False


def _concerns(first: Use, second: Use) -> bool:
    a, b = first.path, second.path
    if (first if len(a) <= len(b) else second).is_own:
        return False  # each rank has a path of its own
    if first.does == MAKES_FOLDER:
        return is_within(b, a) and (len(b) > len(a) or second.does == LISTS) and second.does in (WRITES, LISTS)
    if first.does == WRITES:
        return (a == b and second.does == READS) or (second.does == LISTS and len(a) > len(b) and is_within(a, b))
    if first.does == REMOVES:
        return second.does == WRITES and len(b) > len(a) and is_within(b, a)
    return first.does in (READS, LISTS, WRITES) and second.does == REMOVES and is_within(a, b)


def _makes_it_too(m: Machine, use: Use, first: Use, second: Use) -> bool:
    """The ranks of the second use have made the folder themselves."""
    others = second.event.lanes & ~first.event.lanes
    return use.does == MAKES_FOLDER and is_within(use.path, first.path) and use.event.lanes & others == others


def _is_checked(first: Use, second: Use) -> bool:
    """The error is caught, or the rank looks until the file is there."""
    common = {id(node) for node in first.around}
    for node in second.around:
        if id(node) in common:
            continue
        if isinstance(node, Try) and node.handlers:
            return True
        if isinstance(node, Alt) and node.test is None and node.varies & DIVERGENT:
            return True  # one of several paths, which each rank chooses for itself
        test = getattr(node.node, "test", None) if isinstance(node, Alt | Loop) else None
        words = ast.unparse(test) if test is not None else ""
        # Who passes a test of the rank is known, if the test is.
        is_open = isinstance(node, Alt) and not node.varies & RANKED and node.then_lanes == node.else_lanes
        if _LOOKS.search(words) or (is_open and _RANKED.search(words)):
            return True
    return False


def _may_wait(first: Use, second: Use) -> bool:
    """Return whether the code between both names something that may wait, whatever the reader knows of it."""
    return any(_WAITS.search(text) for text in _between(first, second))


def _between(first: Use, second: Use) -> Iterator[str]:
    """Yield the code that runs between two events: to the end of functions that end, from the start of others."""
    depth = sum(a is b for a, b in zip(first.calls, second.calls, strict=False))
    start, end = _place(first, depth), _place(second, depth)
    if start[0] is end[0]:
        yield start[0].code_between(start[1], end[1])
    for use, is_first in ((first, True), (second, False)):
        for at in range(depth, len(use.calls)):
            function = use.calls[at].function
            if not isinstance(function, Function) or isinstance(function.node, ast.Lambda):
                continue
            node = _place(use, at + 1)[1]
            if is_first:
                yield function.module.code_after(node, function.node)
            else:
                yield function.module.code_before(node, function.node)


def _place(use: Use, depth: int) -> tuple[Module, ast.AST]:
    """Return where a use stands in the function of that depth: the call that leads to it, or itself."""
    node: Call | Event = use.calls[depth] if depth < len(use.calls) else use.event
    return node.module, node.node


def asked_path(m: Machine, event: Event) -> Path:
    """Return the path of a call that asks whether there is a file, where it is the same on all ranks; else nothing."""
    owner, _, name = event.api.rpartition(".")
    row = m.libraries.function(event.api) or m.libraries.method(owner, name)
    parameter = str(row.extra.get("path", "")) if row is not None else ""
    is_asked = row is not None and (row.returns.word == "bool" or event.api.startswith("os.path."))
    if not is_asked or event.snapshot.get(parameter, (LOST,))[0] & (LOST | DIVERGENT):
        return ()
    return components(event.receiver if parameter == "self" else event.arguments.get(parameter)) or ()


def fetched_to(m: Machine, event: Event) -> Path:
    """Return the path to which a call downloads, where it is the same on all ranks that come to it; else nothing."""
    row = m.libraries.function(event.api) if "downloads" in event.tags and not event.may else None
    parameter = str(row.extra.get("path", "")) if row is not None else ""
    is_given = parameter in event.arguments and not event.snapshot.get(parameter, (LOST,))[0] & (LOST | DIVERGENT)
    return (components(event.arguments[parameter]) or ()) if is_given else ()


def _touched(m: Machine, event: Event) -> Iterator[tuple[str, Path, int]]:
    """Yield what an event does to which path, and how the path differs between the ranks."""
    owner, _, name = event.api.rpartition(".")
    row = m.libraries.function(event.api) or m.libraries.method(owner, name)
    if row is None or "path" not in row.extra:
        return
    parameter = str(row.extra["path"])
    varies = event.snapshot.get(parameter, (0,))[0]
    if varies & LOST:
        return
    path = components(event.receiver if parameter == "self" else event.arguments.get(parameter))
    does = _deed(event, row.returns.word, str(row.extra.get("mode", "")), name)
    if does == READS and not varies & DIVERGENT:
        yield from ((does, one, varies) for one in event.paths)
    if not path:
        return
    if does is not None:
        yield does, path, varies
    if "moves-file" in event.tags:
        target = components(event.arguments.get(str(row.extra.get("to", ""))))
        if target:
            yield WRITES, target, event.snapshot.get(str(row.extra.get("to", "")), (0,))[0]


def _deed(event: Event, gives: str, mode: str, name: str) -> str | None:
    if "makes-folder" in event.tags:
        return MAKES_FOLDER
    if event.tags & {"removes", "moves-file"}:
        return REMOVES
    if "opens" in event.tags:
        given = event.arguments.get(mode)
        modes = ("r",) if given is None else given.constants
        if not modes or not all(isinstance(m, str) for m in modes):
            return None
        return READS if all(str(m)[:1] == "r" for m in modes) else WRITES
    if name in _LISTS:
        return LISTS
    if event.tags & {"saves", "saves-collective"}:
        return WRITES
    # Whether it exists may be asked at any time.
    is_asked = gives == "bool" or event.api.startswith("os.path.")
    return READS if event.tags & {"reads-file", "loads"} and not is_asked else None


def _in_order(tree: Seq) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Yield events and lost places in the order of the source with what is around them; a shared subtree once."""
    pending: list[tuple[Node, tuple[Node, ...]]] = [(tree, ())]
    seen: set[int] = set()
    while pending:
        node, around = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Event | Lost):
            yield node, around
        else:
            inner = around if isinstance(node, Seq) else (*around, node)
            pending.extend((child, inner) for child in reversed(children(node)))


__all__ = [
    "LISTS",
    "MAKES_FOLDER",
    "READS",
    "REMOVES",
    "WRITES",
    "Path",
    "Race",
    "Use",
    "asked_path",
    "fetched_to",
    "races",
    "uses",
]
