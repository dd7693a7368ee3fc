"""Tests that each rank makes of a file, and that decide who waits, while one rank makes the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.python.events import Alt, Event, Exit, Node, Seq, children, events
from dslint.python.machine import Machine
from dslint.python.paths import is_within
from dslint.python.queries.files import MAKES_FOLDER, WRITES, Path, asked_path, fetched_to, uses
from dslint.python.varies import DATA, HOST, LOST, RANDOM, RANKED

_MEETS = frozenset({"barrier", "collective", "object-collective"})
_LEAVES = (ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class FileTest:
    """Who finds no file comes to `waits`, before which some ranks only come to `made`, which makes it."""

    test: Alt
    asked: Event
    made: Event
    waits: Event


def file_tests(m: Machine, tree: Seq) -> Iterator[FileTest]:
    """Yield the tests of a file that one rank makes in the arm of those who did not find it."""
    asked = {id(event.node): event for event in events(tree) if "reads-file" in event.tags and not event.may}
    pending: list[Seq] = [tree] if asked else []
    seen: set[int] = set()
    while pending:
        block = pending.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        for at, node in enumerate(block.items):
            if isinstance(node, Alt):
                found = _judged(m, node, block.items[at + 1 :], asked)
                if found is not None:
                    yield found
            pending += [child for child in children(node) if isinstance(child, Seq)]


def _judged(m: Machine, node: Alt, rest: Sequence[Node], asked: dict[int, Event]) -> FileTest | None:
    event = _asked(node, asked)
    path = asked_path(m, event) if event is not None else None
    if event is None or not path or node.varies & (RANKED | DATA | RANDOM | LOST) or node.then_lanes != node.else_lanes:
        return None
    for arm, other in ((node.then, node.orelse), (node.orelse, node.then)):
        alone = [*arm.items, *(rest if _leaves(other) else ())]
        if any(e.tags & _MEETS for e in events(other)):
            continue
        every = [e for part in alone for e in events(part)]
        made = next((use.event for use in uses(m, Seq(alone)) if _makes(use.event, use.does, use.path, path)), None)
        made = made or next((e for e in every if _fetches(m, e, path)), None)
        if made is None:
            continue
        later = every[next(n for n, e in enumerate(every) if e is made) + 1 :]
        waits = next((e for e in later if e.tags & _MEETS and not e.may and e.lanes == node.then_lanes), None)
        if waits is not None and made.lanes != node.then_lanes:
            return FileTest(node, event, made, waits)
    return None


def _asked(node: Alt, asked: dict[int, Event]) -> Event | None:
    """Return the question for a file that alone decides."""
    if not node.varies & HOST or node.test is None:
        return None
    origin = node.test.origin[1] if node.test.origin is not None else None
    return asked.get(id(origin))


def _leaves(block: Seq) -> bool:
    return bool(block.items) and isinstance(last := block.items[-1], Exit) and isinstance(last.node, _LEAVES)


def _makes(event: Event, does: str, made: Path, asked: Path) -> bool:
    if does not in (WRITES, MAKES_FOLDER) or event.may:
        return False
    return made == asked or (is_within(made, asked) and len(made) > len(asked))


def _fetches(m: Machine, event: Event, asked: Path) -> bool:
    """Return whether a call downloads into the folder of the file that was asked for, or into a folder in there."""
    folder = fetched_to(m, event)
    return bool(folder) and (is_within(asked, folder) or is_within(folder, asked))
