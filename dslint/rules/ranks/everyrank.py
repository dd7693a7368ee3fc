"""Where every rank of a run comes: events that no test of the rank, lock or library keeps from any process."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dslint.python.events import RAISE, Alt, Call, Context, Event, Exit, Loop, Node, Seq, Try, children, events
from dslint.python.queries.asked import expressions_of, in_words
from dslint.python.queries.steps import tags_of
from dslint.python.values import Instance, Value
from dslint.python.varies import DIVERGENT, HOST, LOCAL, LOST, RANKED, UNSURE
from dslint.rules.runs import Happening, RunQuery

# What says that a run has several processes.
_STARTS = frozenset({"starts-group", "makes-engine", "wraps-model"})
# What a test of the rank is called, whatever the reader knows of its value.
_RANKED = re.compile(
    r"(?i)rank|world_?size|is_?main|main_?(?:process|rank|node)|master|primary|leader|should_(?:save|log|write)|lock|gpu|worker"
)
_TURNS = frozenset({"main-first", "local-main-first", "rank-zero-only"})
# What context managers are called that let one process after the other in, or only one.
_TAKES_TURNS = re.compile(r"(?i)lock|mutex|sem|first|main|rank|zero|once|master|only|turn|sync|barrier|exclusive|guard")
# Methods that look at their object only.
_PLAIN = frozenset(
    {"lower", "upper", "strip", "keys", "values", "items", "exists", "is_file", "is_dir", "split", "copy"}
)
_DEEPEST = 4
_RUNS_SCRIPT = re.compile(r"(?:ddp|fsdp|deepspeed)(?!.*(?:spawn|fork|notebook))")


Coming = Callable[[Event, tuple[Node, ...]], bool]


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that every rank reaches; `start` says that there are several; `around` are the nodes around it."""

    event: Event
    start: Event
    around: tuple[Node, ...]

    @property
    def is_tried(self) -> bool:
        """Return whether an error here is caught."""
        return any(isinstance(node, Try) and node.handlers for node in self.around)


def arrivals(run: RunQuery, *tags: str, lanes: int | None = None, come: Coming | None = None) -> Iterator[Arrival]:
    """Yield the events with one of the tags that every rank of a run of several processes reaches, each once.

    With `lanes`: those that exactly these ranks reach, by tests of the number of the process on its machine. With
    `come`: those of which it says that the ranks that are meant reach them.
    """
    wanted = frozenset(tags)
    lanes = run.machine.worlds.full if lanes is None else lanes
    come = come or (lambda event, around: every_rank_comes(run, event, around, lanes))
    seen: set[int] = set()
    for found in run.ordered if run.has(*tags) else ():
        spawns = [event.node for event, _ in found if "spawns" in event.tags]
        is_notebook = run.path.endswith(".ipynb")
        regions = [
            (event, around, process)
            for event, around in found
            if _is_start(event) and ((process := _processes(around, spawns)) or not is_notebook or _starts_group(event))
        ]
        if not regions:
            continue
        for event, around in found:
            if not event.tags & wanted or id(event.node) in seen or not come(event, around):
                continue
            inside = _processes(around, spawns)
            start = next((s for s, place, process in regions if process == inside and not exclude(place, around)), None)
            if start is not None:
                seen.add(id(event.node))
                yield Arrival(event, start, around)


def _is_start(event: Event) -> bool:
    if "trainer" in event.tags and event.api.startswith("lightning."):
        return _starts_ranks(event)
    return (
        bool(event.tags & _STARTS) and "training-arguments" not in event.tags and event.api != "torch.nn.DataParallel"
    )


def _starts_group(event: Event) -> bool:
    """A notebook is one process, unless it says otherwise: an `Accelerator` or a `Trainer` takes what there is."""
    return "starts-group" in event.tags and event.api.startswith(("torch.", "deepspeed.", "horovod."))


def _starts_ranks(trainer: Event) -> bool:
    """The trainer starts the script once for each device, as its strategy says for certain."""
    strategy, devices = trainer.arguments.get("strategy"), trainer.arguments.get("devices")
    words = strategy.constants if strategy is not None else None
    is_one = devices is not None and devices.constants in ((1,), ("1",))
    return bool(words) and not is_one and all(_RUNS_SCRIPT.match(str(word)) for word in words or ())


def exclude(first: tuple[Node, ...], second: tuple[Node, ...]) -> bool:
    """Return whether two places lie on different sides of one test."""
    sides = {id(test): side for test, side in pairwise(first) if isinstance(test, Alt)}
    passed = {id(test) for test in first if isinstance(test, Alt)}
    for test, side in pairwise(second):
        if not isinstance(test, Alt) or not isinstance(side, Seq):
            continue
        other = sides.get(id(test), side)
        if isinstance(other, Seq) and other is not side:
            return True
        # Who takes this side leaves, and does not come to what follows the test.
        if (
            id(test) in passed
            and not isinstance(sides.get(id(test)), Seq)
            and any(isinstance(item, Exit) for item in side.items)
        ):
            return True
    return False


def _processes(around: tuple[Node, ...], spawns: list[ast.AST]) -> frozenset[int]:
    """Return the calls that start other processes in which a place lies."""
    nodes = {id(node) for node in spawns}
    return frozenset(id(n.node) for n in around if isinstance(n, Call) and id(n.node) in nodes)


def all_come(run: RunQuery, found: Happening) -> bool:
    """Return whether all ranks come to an event of a script that starts here; it may be one that need not happen."""
    return found.entry.kind == "script" and found.event.lanes == run.machine.worlds.full


def every_rank_comes(run: RunQuery, event: Event, around: tuple[Node, ...], lanes: int, assumed: int = 0) -> bool:
    """Return whether exactly these ranks come to an event, each of them; tests may rest on what is `assumed`."""
    local = 0 if lanes == run.machine.worlds.full else LOCAL
    if event.lanes != lanes or event.may or "rank-zero-only" in event.tags:
        return False
    if event.varies & _PARTS & ~(local | assumed):
        return False
    tests = [node for node in around if isinstance(node, Alt)]
    if not all(is_common(node, assumed) or (local and _is_of_machine(node, lanes)) for node in tests):
        return False
    return not any(keeps_away(run, node) for node in around)


def keeps_away(run: RunQuery, node: Node) -> bool:
    """Return whether a loop or a block may keep processes from what is inside, or lets them in one by one."""
    if isinstance(node, Loop):
        return bool(node.varies & (RANKED | LOST))
    return isinstance(node, Context) and (bool(tags_of(run.machine, node) & _TURNS) or _is_lock(node.manager))


_PARTS = (DIVERGENT & ~HOST) | LOST | UNSURE


def is_common(alt: Alt, assumed: int = 0) -> bool:
    """The test may not send ranks different ways, as far as it can be read."""
    if alt.varies & _PARTS & ~assumed or _RANKED.search(in_words(alt)):
        return False
    return not alt.varies & _PARTS or not any(_asks_machine(node) for node in expressions_of(alt))


def _asks_machine(node: ast.expr) -> bool:
    """Return whether code asks a function that gets nothing, or decides by one: it may know where it runs."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any(not (call.args or call.keywords) and _called(call) not in _PLAIN for call in calls)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_of_machine(alt: Alt, lanes: int) -> bool:
    """Return whether a test lets these ranks to one side by nothing of their own but their number on the machine."""
    return alt.varies & _PARTS == LOCAL and lanes in (alt.then_lanes, alt.else_lanes)


def _is_lock(manager: Value) -> bool:
    """Return whether a context manager may let one process after the other in."""
    for atom in manager.atoms:
        name = atom.cls if isinstance(atom, Instance) and isinstance(atom.cls, str) else ""
        name = name or (atom.cls.node.name if isinstance(atom, Instance) and not isinstance(atom.cls, str) else "")
        call = atom.node if isinstance(atom, Instance) else None
        made = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if "lock" in name.lower() or (not name and (not made or _TAKES_TURNS.search(made))):
            return True
    return False


def in_order(tree: Seq) -> Iterator[tuple[Event, tuple[Node, ...]]]:
    """Yield the events of a tree in the order of the source, a shared subtree once.

    A test that some leave the block by is around all that follows in the block; so is one where some wait for others.
    """
    pending: list[tuple[Node, tuple[Node, ...]]] = [(tree, ())]
    seen: set[int] = set()
    with_barrier = _with_barrier(tree)
    while pending:
        node, around = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Event):
            yield node, around
        elif isinstance(node, Seq):
            inner, within = [], around
            for item in node.items:
                inner.append((item, within))
                item = _last_test(item)
                if isinstance(item, Alt) and _waits_on_one_side(item, with_barrier):
                    # Between two such tests the ranks go one after the other.
                    turns = [
                        n
                        for n in within
                        if isinstance(n, Alt) and n not in around and _waits_on_one_side(n, with_barrier)
                    ]
                    within = tuple(n for n in within if n not in turns) if turns else (*within, item)
                elif isinstance(item, Alt) and _leaves(item):
                    within = (*within, item)
            pending.extend(reversed(inner))
        else:
            # The side of a test stands behind the test.
            pending.extend(
                (c, (*around, node, c) if isinstance(node, Alt) else (*around, node)) for c in reversed(children(node))
            )


def _last_test(item: Node) -> Node:
    """Return the test that all come to at the end of a call, or of the only side that a test leaves open."""
    for _ in range(_DEEPEST):
        block = item.body if isinstance(item, Call) else None
        if isinstance(item, Alt) and not (item.then_lanes and item.else_lanes):
            block = item.then if item.then_lanes else item.orelse
        last = next((inner for inner in reversed(block.items if block else ()) if not isinstance(inner, Exit)), None)
        if last is None:
            break
        item = last
    return item


def _leaves(alt: Alt) -> bool:
    """Return whether one side of a test leaves the block."""
    return any(
        side.items and isinstance(side.items[-1], Exit) and side.items[-1].kind != RAISE
        for side in (alt.then, alt.orelse)
    )


def _with_barrier(tree: Seq) -> frozenset[int]:
    """Return the nodes of a tree, by identity, in which somebody waits at a barrier."""
    found: set[int] = set()
    # Most trees have none, and one look says so.
    if not any("barrier" in event.tags for event in events(tree)):
        return frozenset()
    pending: list[tuple[Node, bool]] = [(tree, False)]
    seen: set[int] = set()
    while pending:
        node, is_done = pending.pop()
        inner = children(node)
        if is_done:
            if any(id(child) in found for child in inner):
                found.add(id(node))
        elif id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Event) and "barrier" in node.tags:
                found.add(id(node))
            pending.append((node, True))
            pending += [(child, False) for child in inner]
    return frozenset(found)


def _waits_on_one_side(alt: Alt, with_barrier: frozenset[int]) -> bool:
    """Return whether some ranks wait at a barrier here, so that the others go first."""
    return (id(alt.then) in with_barrier) != (id(alt.orelse) in with_barrier) and not is_common(alt)


def written_as(event: Event, node: ast.expr | None) -> list[str]:
    """Return the code of an argument, and of what its variables are assigned in the same file."""
    return [event.module.text(found) for found in (written(event, node) if node is not None else [event.node])]


def written(event: Event, node: ast.expr) -> list[ast.expr]:
    """Return an argument, and what its variables are assigned in the same file."""
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    assigned = [
        statement.value
        for statement in event.module.nodes_of(ast.Assign)
        if any(isinstance(t, ast.Name) and t.id in names for t in statement.targets)
    ]
    return [node, *assigned]


def row_of(run: RunQuery, event: Event) -> Mapping[str, Any]:
    """Return the keys of the row of an event; of a constructor those of the bases of the class, too."""
    libraries = run.machine.libraries
    owner, _, name = event.api.rpartition(".")
    row = libraries.function(event.api) or libraries.method(owner, name)
    if row is not None:
        return row.extra
    found: dict[str, Any] = {}
    for base in libraries.lineage(event.api):
        found = {**base.constructor.extra, **found}
    return found


__all__ = ["Arrival", "arrivals", "every_rank_comes", "exclude", "row_of", "written_as"]
