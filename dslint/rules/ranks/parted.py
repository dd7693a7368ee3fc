"""What the rules about ranks that part say of the runs of a script: who makes a call, which test decides, and why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.python.events import Alt, Call, Event, Loop, events, walk
from dslint.python.queries.differences import leaves
from dslint.python.varies import CLOCK, DATA, HOST, OWN, OWN_FILE, RANDOM, RANKED, UNSURE
from dslint.rules.markers import RANKS, WAITS

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.python.entries import Entry
    from dslint.python.queries.parting import Parting
    from dslint.python.source import Module
    from dslint.rules.runs import RunQuery

# Rules that tell of ranks that part: where one of them has spoken about a place, the others do not.
RANKS_PART = (
    *("DSL201", "DSL202", "DSL204", "DSL205", "DSL206", "DSL207", "DSL208", "DSL209", "DSL226", "DSL228", "DSL229"),
    *("DSL230", "DSL232", "DSL235"),
)
# What a module holds in which no run begins, and ranks may part; a cheap look first.
ALONE = (RANKS, WAITS)
MARKERS = (
    r"rank|is_main|main_process|master|should_save|process_zero|global_zero|process_index|RANK|PROCID|last_process",
)
# Calls that wait in some releases only: `save_checkpoint` ends in a barrier from 2.1.0 on (pytorch/trainer/trainer.py).
WAITS_SINCE = {"lightning.Trainer.save_checkpoint": ("Lightning", "2.1")}
# Functions that run before or after a block: the other half may stand in their partner.
_HALVES = re.compile(
    r"__a?(?:enter|exit)__|(?!on_).*(?:_start|_begin|_end|_first)$|(?:begin|end|start|enter|leave|exit)(?:_\w+)?"
)
# A test of the ZeRO stage or of how the model is divided: the visitor of the file knows the run better.
_ASKS_STAGE = re.compile(r"stage|zero_?3|deepspeed|fsdp|shard", re.I)
# Generators that each process seeds from its own entropy, and what seeds them.
_DRAWN = re.compile(r"(?:random|np\.random|numpy\.random)\.\w+")
_SEEDS = re.compile(r"seed", re.I)
# Something is handed on among the ranks.
_TELLS = re.compile(r"broadcast|bcast")


def partings(run: RunQuery, *, is_supposed: bool = False, of_releases: bool = False) -> Iterator[Parting]:
    """Yield the partings of this script that are certain, each place once; `is_supposed` where stage 3 is supposed.

    `of_releases`: also those of calls that wait in some releases of their library only.
    """
    seen: set[tuple[int, int]] = set()
    for entry, found in run.supposed_partings if is_supposed else run.partings:
        parting = _in_decorated(found)
        _, node = place(parting)
        if parting.event.may or (WAITS_SINCE.get(parting.event.api) and not of_releases):
            continue
        if not parting.is_certain and not _is_by_chance(run, entry, parting):
            continue
        if not parting.is_loop and _ASKS_STAGE.search(parting.test.module.text(test_node(parting))):
            continue
        if entry.kind == "function" and _HALVES.fullmatch(getattr(entry.node, "name", "")):
            continue
        if _is_told_there(run, parting):
            continue
        key = (id(parting.test.node), node.lineno)
        if key not in seen:
            seen.add(key)
            yield parting


def _in_decorated(parting: Parting) -> Parting:
    """Return a parting by a decorator with the call inside of the decorated function that leads to the event."""
    if parting.via is None or not isinstance(parting.test.node, ast.FunctionDef | ast.AsyncFunctionDef):
        return parting
    inside = (node for node in walk(parting.via.body) if isinstance(node, Call))
    return replace(parting, via=next((c for c in inside if any(e is parting.event for e in events(c.body))), None))


def _is_told_there(run: RunQuery, parting: Parting) -> bool:
    """Return whether another loop tells this: a generator's own, or the one over it where that deals out work."""
    others = [o for _, o in run.partings if o.event is parting.event and o.test is not parting.test]
    if isinstance(parting.test, Loop) and parting.test.is_frame:
        return any(_holds(parting.test, other.test) and not is_share_of_work(other) for other in others)
    frames = [o.test for o in others if isinstance(o.test, Loop) and o.test.is_frame]
    return parting.is_loop and is_share_of_work(parting) and any(_holds(frame, parting.test) for frame in frames)


def _holds(outer: Loop, inner: Alt | Loop) -> bool:
    return any(node is inner for node in walk(outer.body))


def _is_by_chance(run: RunQuery, entry: Entry, parting: Parting) -> bool:
    """Return whether a random number decides that each process draws for itself: nothing in sight seeds it."""
    if entry.kind != "script" or not parting.varies & RANDOM or parting.is_loop or parting.varies & UNSURE:
        return False
    found = origin(run, parting)
    if found is None or not isinstance(found[1], ast.Call):
        return False
    if not any(map(_DRAWN.fullmatch, (found[0].text(found[1].func), found[0].path_of(found[1].func)))):
        return False
    return not any(module.search(_SEEDS) for module in run.machine.program.modules())


def place(parting: Parting) -> tuple[Module, ast.expr]:
    """Return the call that leads to the event, in the function of the test where it can."""
    found = parting.via if parting.via is not None else parting.event
    assert isinstance(found.node, ast.expr | ast.stmt)
    return found.module, found.node  # type: ignore[return-value]


def is_about_ranks(run: RunQuery, parting: Parting) -> bool:
    """Return whether the number of the rank decides: one rank (of the job, of each machine) or the rest."""
    if parting.is_membership:
        return True
    if not parting.by_lanes or parting.varies & OWN or not isinstance(parting.test, Alt):
        return False
    return ranks(run, parting) != "some" or _is_one_rank(run, parting.test)


def _is_one_rank(run: RunQuery, test: Alt) -> bool:
    """Return whether a test tells one rank from the others: `rank == 1`, and not `rank < n`, which may be any set."""
    then_only, else_only = test.then_lanes & ~test.else_lanes, test.else_lanes & ~test.then_lanes
    for group in run.machine.worlds.machines:
        then = sum(1 for lane in group if then_only >> lane & 1)
        orelse = sum(1 for lane in group if else_only >> lane & 1)
        sizes = [size for size in (then, orelse, len(group) - then - orelse) if size]
        if len(sizes) > 1 and min(sizes) > 1:
            return False
    return True


def is_told_to_some(parting: Parting) -> bool:
    """Return whether a flag decides that only some ranks have set."""
    if parting.by_lanes or parting.varies & OWN or parting.is_loop or parting.is_share or parting.is_membership:
        return False
    return not _is_told(parting)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} - {"self"}


def _with_sources(function: ast.AST, names: set[str]) -> set[str]:
    """Return names with those that they are assigned from: `told = [stop]`, `broadcast(told)`, `stop = told[0]`."""
    found = set(names)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(_names(target) & names for target in node.targets):
            found |= _names(node.value)
    return found


def _is_told(parting: Parting) -> bool:
    """Return whether the function around a test hands on, by its words, what the test asks for."""
    module = parting.test.module
    function = function_around(module, parting.test.node) or module.tree
    asked_names = _with_sources(function, _names(test_node(parting)))
    texts = [module.text(node) for node in ast.walk(function) if isinstance(node, ast.Assign | ast.Expr)]
    told = [text for text in texts if _TELLS.search(text)]
    return any(re.search(rf"\b{name}\b", text) for name in asked_names for text in told)


def is_about_data(parting: Parting) -> bool:
    """Return whether what each rank has for itself decides."""
    if parting.is_loop:
        return bool(parting.varies & (DATA | CLOCK | RANDOM | OWN_FILE)) and not is_share_of_work(parting)
    return bool(parting.varies & OWN) or is_told_to_some(parting)


def is_share_of_work(parting: Parting) -> bool:
    """Return whether a loop goes through what each rank has to do: a flag or what it drew is no share."""
    own = OWN if isinstance(parting.test.node, ast.While) else CLOCK | RANDOM | OWN_FILE
    return bool(parting.varies & RANKED) and not parting.varies & own


def around(parting: Parting) -> str:
    """Return the code of the function around a test; of the module where there is none."""
    module = parting.test.module
    function = function_around(module, parting.test.node)
    return module.text(function) if function is not None else module.source.text


def code_after(module: Module, node: ast.AST) -> str:
    """Return the code of the function around a node that stands after it."""
    function = function_around(module, node) or module.tree
    return module.code_after(node, function)


def function_around(module: Module, node: ast.AST) -> ast.FunctionDef | None:
    """Return the outermost function around a node."""
    line = getattr(node, "lineno", 0)
    return next((f for f in _functions(module) if f.lineno <= line <= (f.end_lineno or 0)), None)


def are_some(run: RunQuery, lanes: int) -> bool:
    """Return whether in some world some of the ranks are meant, and others not."""
    return any(0 < sum(lanes >> lane & 1 for lane in group) < len(group) for group in run.machine.worlds.groups)


def _functions(module: Module) -> list[ast.FunctionDef]:
    return list(module.nodes_of(ast.FunctionDef))


def called(run: RunQuery, parting: Parting, limit: int = 60) -> str:
    """Return the name of what is called, as the code has it."""
    module, node = place(parting)
    return run.text(module, node.func if isinstance(node, ast.Call) else node, limit)


def key(event: Event) -> str:
    """Return the last word of the path of what is called."""
    return event.api.rpartition(".")[2]


def what(run: RunQuery, parting: Parting) -> str:
    """Return what must be called by all ranks."""
    name = called(run, parting)
    if parting.via is not None:
        return f"`{name}` runs `{key(parting.event)}`, which needs every rank"
    return f"`{name}` needs every rank"


def ranks(run: RunQuery, parting: Parting) -> str:
    """Return the ranks that make the call: `main`, `node`, `others` or `some`."""
    test = parting.test
    if not isinstance(test, Alt):
        return "some"
    worlds = run.machine.worlds
    mask = test.then_lanes & ~test.else_lanes if parting.on_true else test.else_lanes & ~test.then_lanes
    rest = test.else_lanes & ~test.then_lanes if parting.on_true else test.then_lanes & ~test.else_lanes
    mask = mask or worlds.full & ~rest
    node = worlds.mask(lambda lane: worlds.lanes[lane][1] == 0)
    # On one machine its first process is that of the job, so the job comes last.
    names = {worlds.full & ~node: "others", worlds.full & ~worlds.main: "others", node: "node", worlds.main: "main"}
    return names.get(mask, "some")


_CALLS = {
    "main": "only rank 0 calls it",
    "node": "only rank 0 of each node calls it",
    "others": "rank 0 never calls it",
}
_PASSES = {
    "main": "only rank 0 gets past this test",
    "node": "only rank 0 of each node gets past this test",
    "others": "rank 0 does not get past this test",
    "some": "only some ranks get past this test",
}
_OPPOSITE = {"main": "others", "node": "others", "others": "main", "some": "some"}


def sides(run: RunQuery, parting: Parting) -> tuple[str, str]:
    """Return who calls the operation, and what the others do."""
    mine, theirs = parting.times
    who = ranks(run, parting)
    if theirs and mine:
        times = f"some ranks call it {_often(mine)} and others {_often(theirs)}"
        if who in ("main", "others"):
            first, rest = (mine, theirs) if who == "main" else (theirs, mine)
            times = f"rank 0 calls it {_often(first)} and the other ranks {_often(rest)}"
        return times, "the last calls have no partner"
    if parting.exit and not _leave_for_certain(parting):
        leave = {"main": "the other ranks", "node": "the other ranks", "others": "rank 0"}.get(who, "some ranks")
        return f"{leave} may leave before it", "the ranks that reach it wait"
    if parting.sometimes:
        missing = {"main": "the other ranks do", "node": "the other ranks do", "others": "rank 0 does"}
        return f"{missing.get(who, 'some ranks do')} not always call it", "the ranks that reach it wait"
    if who == "some":
        return "only some ranks call it", "the others continue without it"
    waits = "the others wait for rank 0" if who == "others" else "the others continue without it"
    return _CALLS[who], waits


def _leave_for_certain(parting: Parting) -> bool:
    """Return whether the test itself sends the other ranks away, all of them."""
    test = parting.test
    if not isinstance(test, Alt) or test.then_lanes & test.else_lanes:
        return False
    return leaves(test.orelse if parting.on_true else test.then)


def _often(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def test_node(parting: Parting) -> ast.AST:
    """Return the expression that decides."""
    return asked(parting.test)


def asked(test: Alt | Loop) -> ast.AST:
    """Return the expression that a test asks, or that a loop goes through."""
    node = test.node
    if isinstance(test, Loop) and test.taken is not None:
        return test.taken
    decorators = getattr(node, "decorator_list", ())
    return getattr(node, "test", None) or getattr(node, "iter", None) or (decorators[0] if decorators else node)


def origin(run: RunQuery, parting: Parting) -> tuple[Module, ast.AST] | None:
    """Return where the difference between the ranks comes from."""
    value = parting.test.subject if isinstance(parting.test, Loop) else parting.test.test
    found = run.machine.origin(value) if value is not None else None
    if found is None and parting.varies & OWN_FILE:
        asks = (h.event for h in run.happenings("reads-file") if h.event.result and h.event.result.varies & OWN_FILE)
        found = next(((event.module, event.node) for event in asks), None)
    return found


def begins(run: RunQuery, parting: Parting, label: str) -> tuple[Location, ...]:
    """Return where the difference between the ranks comes from, as a related place."""
    found = origin(run, parting)
    return (run.location(*found, label),) if found is not None else ()


def test_place(run: RunQuery, parting: Parting) -> Location:
    """Return the test that decides, with what it lets through."""
    who = ranks(run, parting)
    who = who if parting.on_true else _OPPOSITE[who]
    return run.location(parting.test.module, test_node(parting), _PASSES[who])


def inner_place(run: RunQuery, parting: Parting) -> tuple[Location, ...]:
    """Return the test behind that of the rank which decides whether somebody leaves."""
    inner = parting.inner
    return (
        (run.location(inner.module, asked(inner), "decides who leaves, and is evaluated there only"),) if inner else ()
    )


def event_place(run: RunQuery, parting: Parting, label: str = "runs the collective") -> tuple[Location, ...]:
    """Return where the collective itself stands, when a function of the project leads there."""
    if parting.via is None:
        return ()
    return (run.location(parting.event.module, parting.event.node, label),)


def cause(parting: Parting) -> tuple[str, str]:
    """Return why a rank decides for itself, and how the place where that begins is called."""
    varies = parting.varies
    if varies & DATA:
        return "depends on this rank's own data", "each rank has its own data from here on"
    if varies & OWN_FILE:
        return "depends on a file that each rank looks for by itself", "each rank looks for its own file here"
    if parting.asks_share:
        return "depends on this rank's share of the items", "each rank takes its own share here"
    if parting.is_alone and not varies & (CLOCK | RANDOM):
        return "is evaluated on some ranks only", "only some ranks come here"
    if varies & RANKED and (varies & HOST or not varies & OWN):
        return "is set on some ranks only", "only some ranks come here"
    if varies & CLOCK:
        return "reads this rank's clock", "no two ranks pass a limit at the same step"
    if varies & HOST and not varies & RANDOM:
        return "depends on this process's files or memory", "each process has its own"
    return "depends on this rank's random number", "each rank draws its own number"
